package proxier

import (
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/metric"
	"github.com/nftproxy/nftproxy/proxier/table"
	"github.com/nftproxy/nftproxy/proxier/table/keep"
)

// Metrics with names that begin with kubeproxy_ have the names, labels and
// buckets of kube-proxy's nftables mode, so that dashboards and alerts for it
// work here. Durations are in seconds, timestamps in seconds since 1970.
//
// A metric that code observes is a field of metrics and is created in
// newMetrics. A metric that is a number of table.Stats is a call in
// collectTable. Package follow adds the metrics of the followers.

// metrics are all metrics of a Proxier. Collect does not wait for a sync:
// numbers of the tables are as of the last publish.
type metrics struct {
	*metric.Set
	syncDuration, fullSyncDuration, partialSyncDuration *prometheus.HistogramVec
	programming                                         *prometheus.HistogramVec
	lastSynced, lastQueued                              *prometheus.GaugeVec
	syncFailures                                        *prometheus.CounterVec
	serviceChanges, endpointChanges                     changeMetrics
	invalidObjects                                      prometheus.Gauge
}

// changeMetrics count the changes of one kind of object: all of them, and those
// that no sync has handled yet.
type changeMetrics struct {
	total   prometheus.Counter
	pending prometheus.Gauge
}

// newMetrics creates the metrics, with a value of zero for each family.
func newMetrics(families ...nft.Family) *metrics {
	const syncs = "kubeproxy_sync_proxy_rules_"
	s := metric.NewSet(families...)
	changes := func(name, help string) changeMetrics {
		return changeMetrics{
			total:   s.Counter(syncs+name+"_total", help+"."),
			pending: s.Gauge(syncs+name+"_pending", help+" that no sync has handled yet."),
		}
	}
	return &metrics{
		Set:          s,
		syncDuration: s.FamilyHistogram(syncs+"duration_seconds", "Duration of a sync."),
		fullSyncDuration: s.FamilyHistogram("kubeproxy_sync_full_proxy_rules_duration_seconds",
			"Duration of a sync that wrote the whole table."),
		partialSyncDuration: s.FamilyHistogram("kubeproxy_sync_partial_proxy_rules_duration_seconds",
			"Duration of a sync that wrote the changes only."),
		programming: s.FamilyHistogram("kubeproxy_network_programming_duration_seconds",
			"Time from the change of a pod or Service, according to its EndpointSlice, to the end of the sync that "+
				"made it effective.", programmingBuckets()...),
		lastSynced: s.FamilyGauge(syncs+"last_timestamp_seconds", "Time of the last successful sync."),
		lastQueued: s.FamilyGauge(syncs+"last_queued_timestamp_seconds",
			"Time at which a sync was last requested."),
		syncFailures:    s.FamilyCounter(syncs+"nftables_sync_failures_total", "Syncs that failed."),
		serviceChanges:  changes("service_changes", "Changes of Services"),
		endpointChanges: changes("endpoint_changes", "Changes of EndpointSlices"),
		invalidObjects: s.Gauge("nftproxy_invalid_objects",
			"Services and EndpointSlices with invalid fields, which are ignored."),
	}
}

// programmingBuckets returns the buckets of kube-proxy's
// network_programming_duration_seconds: from 0.25 s to 5 min.
func programmingBuckets() []float64 {
	return slices.Concat(
		prometheus.LinearBuckets(0.25, 0.25, 2),
		prometheus.LinearBuckets(1, 1, 59),
		prometheus.LinearBuckets(60, 5, 12),
		prometheus.LinearBuckets(120, 30, 7))
}

// synced records a sync.
func (m *metrics) synced(r keep.SyncResult) {
	family, seconds := r.Family.Name(), r.Duration.Seconds()
	m.syncDuration.WithLabelValues(family).Observe(seconds)
	if r.Full {
		m.fullSyncDuration.WithLabelValues(family).Observe(seconds)
	} else {
		m.partialSyncDuration.WithLabelValues(family).Observe(seconds)
	}
	if r.Err != nil {
		m.syncFailures.WithLabelValues(family).Inc()
		return
	}
	m.lastSynced.WithLabelValues(family).SetToCurrentTime()
}

// programmed records that the changes that were triggered at these times are
// effective.
func (m *metrics) programmed(f nft.Family, triggers []time.Time) {
	observer := m.programming.WithLabelValues(f.Name())
	for _, t := range triggers {
		observer.Observe(time.Since(t).Seconds())
	}
}

// collectTable collects the numbers of a table, and the health of its family.
func collectTable(m metric.Values, s *table.Stats, isHealthy bool) {
	m.Counter("nftproxy_transactions_total", "Transactions that the kernel carried out.", float64(s.Transactions))
	for _, cause := range keep.RewriteCauses() {
		m.Counter("nftproxy_rewrites_total", "Syncs that wrote the whole table, by cause.",
			float64(s.RewriteCauses[cause]), "cause", string(cause))
	}
	m.Counter("nftproxy_rows_written_total", "Rows that were added to sets and maps, or deleted.",
		float64(s.RowsWritten))
	m.Counter("nftproxy_netlink_bytes_total", "Bytes that were sent to the kernel in transactions.",
		float64(s.BytesWritten))
	m.Counter("nftproxy_commit_seconds_total", "Time that the kernel took for transactions.", s.CommitTime.Seconds())
	m.Counter("nftproxy_refusals_total", "How often the kernel refused a service port.", float64(s.Refusals))
	m.Counter("nftproxy_conflicts_total", "How often a service port lost an address and port to another one.",
		float64(s.Conflicts))
	m.Counter("kubeproxy_sync_proxy_rules_nftables_cleanup_failures_total",
		"How often the deletion of unused chains and sets failed.", float64(s.CleanupFailures))
	m.Gauge("nftproxy_refused_service_ports",
		"Service ports that keep old rules because the kernel refuses new ones.", float64(s.Refused))
	m.Gauge("nftproxy_contested_frontends",
		"Addresses and ports that several service ports claim, or one and the node.", float64(s.Contested))
	m.Gauge("nftproxy_reduced_services",
		"Services of which a part is not served, because they exceed a budget of rows.", float64(s.Reduced))
	m.Gauge("nftproxy_ejected_endpoints",
		"Endpoints of service ports that get no new connections because they answer nothing or fail health checks.",
		float64(s.Ejected))
	m.Gauge("nftproxy_waiting_namespaces", "Namespaces whose changes wait for their turns.", float64(s.Waiting))
	wait := 0.0
	if s.Waiting > 0 {
		wait = time.Since(s.WaitingNamespaces[0].Since).Seconds()
	}
	m.Gauge("nftproxy_waiting_seconds", "How long the change has waited that waits longest for its turn.", wait)
	for set, n := range s.Rows {
		m.Gauge("nftproxy_rows", "Rows of a set or map, without the affinity sets, which packets fill.",
			float64(n), "set", set)
	}
	for _, kind := range keep.DamageKinds() {
		m.Counter("nftproxy_repairs_total",
			"Repairs of the table after another program changed it, by the kind of the damage.",
			float64(s.Repairs[kind]), "kind", string(kind))
	}
	for policy, n := range map[string]int{
		"internal": s.NoLocalEndpoints.Internal, "external": s.NoLocalEndpoints.External,
	} {
		m.Gauge("kubeproxy_sync_proxy_rules_no_local_endpoints_total",
			"Service ports with a traffic policy Local that have endpoints, but none on this node.",
			float64(n), "traffic_policy", policy)
	}
	damaged := 0.0
	if s.Outage != nil {
		damaged = 1
	}
	m.Gauge("nftproxy_table_damaged",
		"1 if another program's damage of the table is not repaired at once, or occurs repeatedly, 0 otherwise.",
		damaged)
	healthy := 0.0
	if isHealthy {
		healthy = 1
	}
	m.Gauge("nftproxy_healthy", "0 if a change has been waiting too long for a successful sync, 1 otherwise.", healthy)
}
