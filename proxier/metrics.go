package proxier

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics shows what the backends of a Proxier did. The numbers are those after the last sync: collecting them
// waits for nobody.
type metrics struct {
	last           atomic.Pointer[[]familyMetrics]
	flowsDeleted   atomic.Int64
	invalidObjects atomic.Int64
	transactions   *prometheus.Desc
	rewrites       *prometheus.Desc
	repairs        *prometheus.Desc
	rows           *prometheus.Desc
	bytes          *prometheus.Desc
	commitSeconds  *prometheus.Desc
	refused        *prometheus.Desc
	refusals       *prometheus.Desc
	contested      *prometheus.Desc
	conflicts      *prometheus.Desc
	flowsDeletions *prometheus.Desc
	invalid        *prometheus.Desc
}

// familyMetrics are the numbers of one backend.
type familyMetrics struct {
	family             string
	stats              Stats
	refused, contested int
}

func newMetrics() *metrics {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("nftproxy_"+name, help, labels, nil)
	}
	const family = "ip_family"
	return &metrics{
		transactions:   desc("transactions_total", "Transactions that the kernel carried out.", family),
		rewrites:       desc("rewrites_total", "Syncs that wrote the whole table.", family),
		repairs:        desc("repairs_total", "Syncs that wrote the whole table because another program had changed it.", family),
		rows:           desc("rows_written_total", "Rows added to or deleted from sets and maps.", family),
		bytes:          desc("netlink_bytes_total", "Bytes sent to the kernel in transactions.", family),
		commitSeconds:  desc("commit_seconds_total", "Time that the kernel took for transactions.", family),
		refused:        desc("refused_service_ports", "Service ports that are left out because the kernel refuses them.", family),
		refusals:       desc("refusals_total", "How often the kernel refused a service port that it had not refused before.", family),
		contested:      desc("contested_frontends", "Addresses and ports that several service ports ask for.", family),
		conflicts:      desc("conflicts_total", "How often a service port lost an address and port to another one.", family),
		invalid:        desc("invalid_objects", "Services and EndpointSlices of which a part makes no sense and is left out."),
		flowsDeletions: desc("stale_flows_deleted_total", "Flows of UDP clients deleted because their endpoint was gone."),
	}
}

// publish makes the numbers of the backends visible.
func (m *metrics) publish(backends []*Backend) {
	all := make([]familyMetrics, len(backends))
	for i, b := range backends {
		all[i] = familyMetrics{b.layout.family.String(), b.stats, len(b.refused), len(b.claims.waiting)}
	}
	m.last.Store(&all)
}

// Describe implements prometheus.Collector.
func (m *metrics) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(m, ch) }

// Collect implements prometheus.Collector.
func (m *metrics) Collect(ch chan<- prometheus.Metric) {
	ch <- prometheus.MustNewConstMetric(m.flowsDeletions, prometheus.CounterValue, float64(m.flowsDeleted.Load()))
	ch <- prometheus.MustNewConstMetric(m.invalid, prometheus.GaugeValue, float64(m.invalidObjects.Load()))
	all := m.last.Load()
	if all == nil {
		return
	}
	for _, f := range *all {
		send := func(d *prometheus.Desc, typ prometheus.ValueType, v float64) {
			ch <- prometheus.MustNewConstMetric(d, typ, v, f.family)
		}
		send(m.transactions, prometheus.CounterValue, float64(f.stats.Transactions))
		send(m.rewrites, prometheus.CounterValue, float64(f.stats.Rewrites))
		send(m.repairs, prometheus.CounterValue, float64(f.stats.Repairs))
		send(m.rows, prometheus.CounterValue, float64(f.stats.RowsWritten))
		send(m.bytes, prometheus.CounterValue, float64(f.stats.BytesWritten))
		send(m.commitSeconds, prometheus.CounterValue, f.stats.CommitTime.Seconds())
		send(m.refused, prometheus.GaugeValue, float64(f.refused))
		send(m.refusals, prometheus.CounterValue, float64(f.stats.Refusals))
		send(m.contested, prometheus.GaugeValue, float64(f.contested))
		send(m.conflicts, prometheus.CounterValue, float64(f.stats.Conflicts))
	}
}
