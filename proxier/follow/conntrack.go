package follow

import (
	"context"
	"net/netip"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/klog/v2"

	"github.com/nftproxy/nftproxy/conntrack"
	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/metric"
	"github.com/nftproxy/nftproxy/proxier/table"
)

// cleaning is a follower that cleans connection tracking. It passes the
// addresses of NodePorts to the cleaner.
type cleaning struct {
	passes  *passMetrics
	conn    *conntrack.Conn
	cleaner flowCleaner
}

// flowCleaner is a conntrack.Cleaner.
type flowCleaner interface {
	Run(context.Context) error
	Update(...conntrack.FrontendChange)
	SetNodeAddrs(nft.Family, []netip.Addr)
	Remove(...conntrack.Removal)
}

func (c *cleaning) committed(commit *table.Commit) {
	if commit.NodePortAddrsChanged {
		c.cleaner.SetNodeAddrs(commit.Family, commit.NodePortAddrs)
	}
}

func (c *cleaning) run(ctx context.Context) { c.cleaner.Run(ctx) }

func (c *cleaning) close() error { return c.conn.Close() }

// passMetrics are the metrics of the passes of all cleaners.
type passMetrics struct {
	families []nft.Family
	duration *prometheus.HistogramVec
	deleted  *prometheus.CounterVec
}

func newPassMetrics(m *metric.Set, families []nft.Family) *passMetrics {
	return &passMetrics{
		families: families,
		duration: m.FamilyHistogram("kubeproxy_conntrack_reconciler_sync_duration_seconds",
			"Duration of a search for stale flows."),
		deleted: m.FamilyCounter("kubeproxy_conntrack_reconciler_deleted_entries_total",
			"Stale flows that were deleted."),
	}
}

// observe records a pass. The counters count its deleted flows too.
func (m *passMetrics) observe(r conntrack.Result, counters ...*prometheus.CounterVec) {
	for _, f := range m.families {
		deleted := r.Deleted - r.DeletedIPv6
		if f == nft.IPv6 {
			deleted = r.DeletedIPv6
		}
		m.duration.WithLabelValues(f.Name()).Observe(r.Duration.Seconds())
		for _, c := range append(counters, m.deleted) {
			c.WithLabelValues(f.Name()).Add(float64(deleted))
		}
	}
}

var (
	flowsDesc = prometheus.NewDesc("nftproxy_conntrack_entries",
		"Flows in connection tracking.", nil, nil)
	maxFlowsDesc = prometheus.NewDesc("nftproxy_conntrack_max",
		"Maximum number of flows in connection tracking. If it is reached, the kernel drops new connections.", nil, nil)
)

// collectConntrack collects the fill of connection tracking in the network
// namespace of the process.
func collectConntrack(ch chan<- prometheus.Metric) {
	usage, err := conntrack.ReadUsage("/")
	if err != nil {
		klog.V(2).InfoS("Failed to read the usage of connection tracking", "err", err)
		return
	}
	ch <- prometheus.MustNewConstMetric(flowsDesc, prometheus.GaugeValue, float64(usage.Entries))
	ch <- prometheus.MustNewConstMetric(maxFlowsDesc, prometheus.GaugeValue, float64(usage.Max))
}
