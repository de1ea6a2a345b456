package proxier

import (
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/klog/v2"

	"github.com/nftproxy/nftproxy/conntrack"
)

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
