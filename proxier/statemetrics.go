package proxier

import (
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/klog/v2"

	"github.com/nftproxy/nftproxy/conntrack"
	"github.com/nftproxy/nftproxy/healthcheck"
)

// The descriptions of gauges that are computed when they are collected.
var (
	healthyDesc = prometheus.NewDesc("nftproxy_healthy",
		"0 if a change has been waiting too long for a successful sync, 1 otherwise.",
		[]string{labelFamily}, nil)
	flowsDesc = prometheus.NewDesc("nftproxy_conntrack_entries",
		"Flows in connection tracking.", nil, nil)
	maxFlowsDesc = prometheus.NewDesc("nftproxy_conntrack_max",
		"Maximum number of flows in connection tracking. If it is reached, the kernel drops new connections.", nil, nil)
)

// stateMetrics collects the health of the Proxier, and the fill of connection
// tracking in the network namespace of the process.
type stateMetrics struct {
	health func() []healthcheck.FamilyHealth
}

// Describe implements prometheus.Collector.
func (m stateMetrics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{healthyDesc, flowsDesc, maxFlowsDesc} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (m stateMetrics) Collect(ch chan<- prometheus.Metric) {
	for _, f := range m.health() {
		healthy := 0.0
		if f.Healthy {
			healthy = 1
		}
		ch <- prometheus.MustNewConstMetric(healthyDesc, prometheus.GaugeValue, healthy, f.Family)
	}
	usage, err := conntrack.ReadUsage("/")
	if err != nil {
		klog.V(2).InfoS("Failed to read the usage of connection tracking", "err", err)
		return
	}
	ch <- prometheus.MustNewConstMetric(flowsDesc, prometheus.GaugeValue, float64(usage.Entries))
	ch <- prometheus.MustNewConstMetric(maxFlowsDesc, prometheus.GaugeValue, float64(usage.Max))
}
