package proxier

import (
	"maps"
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nftproxy/nftproxy/proxier/localhost"
	"github.com/nftproxy/nftproxy/proxier/table"
	"github.com/nftproxy/nftproxy/proxier/table/keep"
)

// familyState is the state of an address family, as metrics show it.
type familyState struct {
	*table.Stats
	healthy   bool
	localhost localhost.Stats // zero without NodePorts on localhost
}

// familyMetric is a metric with a value for each address family, and for each
// value of a label.
type familyMetric struct {
	desc *prometheus.Desc
	typ  prometheus.ValueType
	// values returns values by label, or one value for "" if label is empty.
	values func(*familyState) map[string]float64
	label  string
}

// allFamilyMetrics are the metrics of the families.
var allFamilyMetrics = []familyMetric{
	count("nftproxy_transactions_total", "Transactions that the kernel carried out.",
		func(s *familyState) float64 { return float64(s.Transactions) }),
	labelled("nftproxy_rewrites_total", "Syncs that wrote the whole table, by cause.",
		prometheus.CounterValue, "cause", func(s *familyState) map[string]float64 {
			return counts(keep.RewriteCauses(), s.RewriteCauses)
		}),
	count("nftproxy_rows_written_total", "Rows that were added to sets and maps, or deleted.",
		func(s *familyState) float64 { return float64(s.RowsWritten) }),
	count("nftproxy_netlink_bytes_total", "Bytes that were sent to the kernel in transactions.",
		func(s *familyState) float64 { return float64(s.BytesWritten) }),
	count("nftproxy_commit_seconds_total", "Time that the kernel took for transactions.",
		func(s *familyState) float64 { return s.CommitTime.Seconds() }),
	count("nftproxy_refusals_total", "How often the kernel refused a service port.",
		func(s *familyState) float64 { return float64(s.Refusals) }),
	count("nftproxy_conflicts_total", "How often a service port lost an address and port to another one.",
		func(s *familyState) float64 { return float64(s.Conflicts) }),
	count("kubeproxy_sync_proxy_rules_nftables_cleanup_failures_total",
		"How often the deletion of unused chains and sets failed.",
		func(s *familyState) float64 { return float64(s.CleanupFailures) }),
	gauge("nftproxy_refused_service_ports", "Service ports that keep old rules because the kernel refuses new ones.",
		func(s *familyState) float64 { return float64(s.Refused) }),
	gauge("nftproxy_contested_frontends", "Addresses and ports that several service ports claim, or one and the node.",
		func(s *familyState) float64 { return float64(s.Contested) }),
	gauge("nftproxy_reduced_services", "Services of which a part is not served, because they exceed a budget of rows.",
		func(s *familyState) float64 { return float64(s.Reduced) }),
	labelled("nftproxy_rows", "Rows of a set or map, without the affinity sets, which packets fill.",
		prometheus.GaugeValue, "set", func(s *familyState) map[string]float64 {
			return counts(slices.Collect(maps.Keys(s.Rows)), s.Rows)
		}),
	labelled("nftproxy_repairs_total",
		"Repairs of the table after another program changed it, by the kind of the damage.",
		prometheus.CounterValue, "kind", func(s *familyState) map[string]float64 {
			return counts(keep.DamageKinds(), s.Repairs)
		}),
	labelled("kubeproxy_sync_proxy_rules_no_local_endpoints_total",
		"Service ports with a traffic policy Local that have endpoints, but none on this node.",
		prometheus.GaugeValue, "traffic_policy", func(s *familyState) map[string]float64 {
			return map[string]float64{
				"internal": float64(s.NoLocalEndpoints.Internal), "external": float64(s.NoLocalEndpoints.External),
			}
		}),
	gauge("nftproxy_healthy", "0 if a change has been waiting too long for a successful sync, 1 otherwise.",
		func(s *familyState) float64 {
			if s.healthy {
				return 1
			}
			return 0
		}),
	// Metrics of NodePorts on localhost (KEP-6032).
	gauge("kubeproxy_nftables_localhost_nodeport_listeners", "TCP NodePorts that are open on localhost.",
		func(s *familyState) float64 { return float64(s.localhost.Listeners) }),
	count("kubeproxy_nftables_localhost_nodeport_listener_creation_failures_total",
		"Failures to open a TCP NodePort on localhost.",
		func(s *familyState) float64 { return float64(s.localhost.Failures) }),
}

func count(name, help string, value func(*familyState) float64) familyMetric {
	return single(name, help, prometheus.CounterValue, value)
}

func gauge(name, help string, value func(*familyState) float64) familyMetric {
	return single(name, help, prometheus.GaugeValue, value)
}

func single(name, help string, typ prometheus.ValueType, value func(*familyState) float64) familyMetric {
	return familyMetric{
		desc: prometheus.NewDesc(name, help, []string{labelFamily}, nil), typ: typ,
		values: func(s *familyState) map[string]float64 { return map[string]float64{"": value(s)} },
	}
}

func labelled(
	name, help string, typ prometheus.ValueType, label string, values func(*familyState) map[string]float64,
) familyMetric {
	desc := prometheus.NewDesc(name, help, []string{labelFamily, label}, nil)
	return familyMetric{desc: desc, typ: typ, values: values, label: label}
}

// counts returns the number of each value of a label, also of those without
// any.
func counts[T ~string](all []T, numbers map[T]int) map[string]float64 {
	values := make(map[string]float64, len(all))
	for _, value := range all {
		values[string(value)] = float64(numbers[value])
	}
	return values
}

// collect collects the metrics of the families.
func (all families) collect(ch chan<- prometheus.Metric) {
	for _, f := range all {
		state := &familyState{Stats: f.stats.Load(), healthy: f.health.state().Healthy}
		if f.localhost != nil {
			state.localhost = f.localhost.server.Stats()
		}
		for _, metric := range allFamilyMetrics {
			for label, value := range metric.values(state) {
				labels := []string{f.name()}
				if metric.label != "" {
					labels = append(labels, label)
				}
				ch <- prometheus.MustNewConstMetric(metric.desc, metric.typ, value, labels...)
			}
		}
	}
}
