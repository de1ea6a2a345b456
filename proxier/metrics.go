package proxier

import (
	"maps"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nftproxy/nftproxy/conntrack"
	"github.com/nftproxy/nftproxy/nft"
)

// metrics shows what the backends of a Proxier did: under kube-proxy's names what kube-proxy tells, and under names of its own, which begin
// with nftproxy_, what else there is to know. The latter are the numbers after the last sync: collecting them waits for nobody.
type metrics struct {
	kubeProxy      *kubeProxyMetrics
	last           atomic.Pointer[[]familyMetrics]
	flowsDeleted   atomic.Int64
	invalidObjects atomic.Int64
	transactions   *prometheus.Desc
	rewrites       *prometheus.Desc
	repairs        *prometheus.Desc
	rows           *prometheus.Desc
	setRows        *prometheus.Desc
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
	rows               map[string]int // by set
	repairs            map[damageKind]int
	refused, contested int
}

func newMetrics() *metrics {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("nftproxy_"+name, help, labels, nil)
	}
	const family = labelFamily
	return &metrics{
		kubeProxy:      newKubeProxyMetrics(),
		transactions:   desc("transactions_total", "Transactions that the kernel carried out.", family),
		rewrites:       desc("rewrites_total", "Syncs that wrote the whole table.", family),
		repairs:        desc("repairs_total", "Repairs of the table after another program changed it, by the kind of what was changed.", family, "kind"),
		rows:           desc("rows_written_total", "Rows added to or deleted from sets and maps.", family),
		setRows:        desc("rows", "Rows of a set or map, without the affinity sets, which packets fill.", family, "set"),
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

// publish makes the present numbers of the backends visible.
func (m *metrics) publish(backends []*Backend) {
	all := make([]familyMetrics, len(backends))
	for i, b := range backends {
		all[i] = familyMetrics{
			family: string(apiFamily(b.layout.family)), stats: b.stats, rows: maps.Clone(b.have.rows), repairs: maps.Clone(b.repairs.count),
			refused: len(b.refused), contested: len(b.claims.waiting),
		}
	}
	m.last.Store(&all)
}

// publishFlows makes visible what a search for stale flows, which is one for all backends, came to.
func (m *metrics) publishFlows(r conntrack.Result, backends []*Backend) {
	m.flowsDeleted.Add(int64(r.Deleted))
	for _, b := range backends {
		family, deleted := string(apiFamily(b.layout.family)), r.Deleted-r.DeletedIPv6
		if b.layout.family == nft.IPv6 {
			deleted = r.DeletedIPv6
		}
		m.kubeProxy.flowsDuration.WithLabelValues(family).Observe(r.Duration.Seconds())
		m.kubeProxy.flowsDeleted.WithLabelValues(family).Add(float64(deleted))
	}
}

// Describe implements prometheus.Collector.
func (m *metrics) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(m, ch) }

// Collect implements prometheus.Collector.
func (m *metrics) Collect(ch chan<- prometheus.Metric) {
	for _, c := range m.kubeProxy.collectors() {
		c.Collect(ch)
	}
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
		for _, kind := range damageKinds {
			ch <- prometheus.MustNewConstMetric(m.repairs, prometheus.CounterValue, float64(f.repairs[kind]), f.family, string(kind))
		}
		send(m.rows, prometheus.CounterValue, float64(f.stats.RowsWritten))
		for set, rows := range f.rows {
			ch <- prometheus.MustNewConstMetric(m.setRows, prometheus.GaugeValue, float64(rows), f.family, set)
		}
		send(m.bytes, prometheus.CounterValue, float64(f.stats.BytesWritten))
		send(m.commitSeconds, prometheus.CounterValue, f.stats.CommitTime.Seconds())
		send(m.refused, prometheus.GaugeValue, float64(f.refused))
		send(m.refusals, prometheus.CounterValue, float64(f.stats.Refusals))
		send(m.contested, prometheus.GaugeValue, float64(f.contested))
		send(m.conflicts, prometheus.CounterValue, float64(f.stats.Conflicts))
	}
}
