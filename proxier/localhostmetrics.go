package proxier

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/nftproxy/nftproxy/proxier/localhost"
)

// Metrics of NodePorts on localhost (KEP-6032).
var (
	localhostListeners = prometheus.NewDesc("kubeproxy_nftables_localhost_nodeport_listeners",
		"TCP NodePorts that are open on localhost.", []string{labelFamily}, nil)
	localhostFailures = prometheus.NewDesc("kubeproxy_nftables_localhost_nodeport_listener_creation_failures_total",
		"Failures to open a TCP NodePort on localhost.", []string{labelFamily}, nil)
)

// localhostMetrics collects the metrics of NodePorts on localhost. They are
// zero if there are none.
type localhostMetrics struct{ families []*family }

// Describe implements prometheus.Collector.
func (m localhostMetrics) Describe(ch chan<- *prometheus.Desc) {
	prometheus.DescribeByCollect(m, ch)
}

// Collect implements prometheus.Collector.
func (m localhostMetrics) Collect(ch chan<- prometheus.Metric) {
	for _, f := range m.families {
		var stats localhost.Stats
		if f.localhost != nil {
			stats = f.localhost.server.Stats()
		}
		ch <- prometheus.MustNewConstMetric(
			localhostListeners, prometheus.GaugeValue, float64(stats.Listeners), f.name())
		ch <- prometheus.MustNewConstMetric(
			localhostFailures, prometheus.CounterValue, float64(stats.Failures), f.name())
	}
}
