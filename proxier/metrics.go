package proxier

import (
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nftproxy/nftproxy/conntrack"
	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/table/keep"
)

// Metrics with names that begin with kubeproxy_ have the names, labels and
// buckets of kube-proxy's nftables mode, so that dashboards and alerts for it
// work here. Durations are in seconds, timestamps in seconds since 1970.
//
// A metric that code observes is a field of metrics and is created in
// newMetrics. A metric that is a number of table.Stats is a line of
// allFamilyMetrics.

// labelFamily is the label of an address family: IPv4 or IPv6, as in the API.
const labelFamily = "ip_family"

// metrics implements prometheus.Collector. Any goroutine can use it.
type metrics struct {
	syncDuration, fullSyncDuration, partialSyncDuration *prometheus.HistogramVec
	programming                                         *prometheus.HistogramVec
	lastSynced, lastQueued                              *prometheus.GaugeVec
	syncFailures                                        *prometheus.CounterVec
	flowsDuration                                       *prometheus.HistogramVec
	flowsDeleted                                        *prometheus.CounterVec
	serviceChanges, endpointChanges                     changeMetrics
	staleFlowsDeleted, endpointsGone, endpointsIgnored  prometheus.Counter
	staleConnectionsReset                               *prometheus.CounterVec
	invalidObjects                                      prometheus.Gauge

	collectors []func(chan<- prometheus.Metric) // of all of the above, and of others
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
	short := prometheus.ExponentialBuckets(0.001, 2, 15) // 1 ms to 16 s
	m := &metrics{}
	c := creator{m, families}
	m.syncDuration = c.histogram(syncs+"duration_seconds", "Duration of a sync.", short)
	m.fullSyncDuration = c.histogram("kubeproxy_sync_full_proxy_rules_duration_seconds",
		"Duration of a sync that wrote the whole table.", short)
	m.partialSyncDuration = c.histogram("kubeproxy_sync_partial_proxy_rules_duration_seconds",
		"Duration of a sync that wrote the changes only.", short)
	m.programming = c.histogram("kubeproxy_network_programming_duration_seconds",
		"Time from the change of a pod or Service, according to its EndpointSlice, to the end of the sync that "+
			"made it effective.", programmingBuckets())
	m.lastSynced = c.gauge(syncs+"last_timestamp_seconds", "Time of the last successful sync.")
	m.lastQueued = c.gauge(syncs+"last_queued_timestamp_seconds", "Time at which a sync was last requested.")
	m.syncFailures = c.counter(syncs+"nftables_sync_failures_total", "Syncs that failed.")
	m.flowsDuration = c.histogram("kubeproxy_conntrack_reconciler_sync_duration_seconds",
		"Duration of a search for stale flows.", short)
	m.flowsDeleted = c.counter("kubeproxy_conntrack_reconciler_deleted_entries_total", "Stale flows that were deleted.")
	m.serviceChanges = c.changes(syncs+"service_changes_", "Changes of Services")
	m.endpointChanges = c.changes(syncs+"endpoint_changes_", "Changes of EndpointSlices")
	m.staleFlowsDeleted = c.plainCounter("nftproxy_stale_flows_deleted_total",
		"Flows that were deleted: of UDP clients whose endpoint was removed, and TCP attempts without rules.")
	m.endpointsGone = c.plainCounter("nftproxy_endpoints_gone_total",
		"Endpoints of service ports that were gone, so that their connections were reset.")
	m.endpointsIgnored = c.plainCounter("nftproxy_endpoints_gone_ignored_total",
		"Endpoints of service ports whose connections stay because too many endpoints were gone.")
	m.staleConnectionsReset = c.counter("nftproxy_stale_connections_reset_total",
		"TCP and SCTP connections that were reset because their endpoint was gone.")
	m.invalidObjects = c.plainGauge("nftproxy_invalid_objects",
		"Services and EndpointSlices with invalid fields, which are ignored.")
	return m
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

// searched records a search in the table of connection tracking. reset counts
// the deleted connections to endpoints that are gone, nil for stale flows.
func (m *metrics) searched(families []nft.Family, r conntrack.Result, reset *prometheus.CounterVec) {
	for _, f := range families {
		deleted := float64(r.Deleted - r.DeletedIPv6)
		if f == nft.IPv6 {
			deleted = float64(r.DeletedIPv6)
		}
		m.flowsDuration.WithLabelValues(f.Name()).Observe(r.Duration.Seconds())
		m.flowsDeleted.WithLabelValues(f.Name()).Add(deleted)
		if reset != nil {
			reset.WithLabelValues(f.Name()).Add(deleted)
		}
	}
}

// Describe implements prometheus.Collector.
func (m *metrics) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(m, ch) }

// Collect implements prometheus.Collector. It does not wait for a sync: numbers
// of the tables are as of the last publish.
func (m *metrics) Collect(ch chan<- prometheus.Metric) {
	for _, collect := range m.collectors {
		collect(ch)
	}
}

// add adds a function that collects metrics, before they are in use.
func (m *metrics) add(collect func(chan<- prometheus.Metric)) {
	m.collectors = append(m.collectors, collect)
}

// creator creates metrics and registers them in metrics.collectors.
type creator struct {
	metrics  *metrics
	families []nft.Family
}

// ofFamilies registers a metric, and creates a value of zero for each family.
func ofFamilies[V interface {
	prometheus.Collector
	WithLabelValues(...string) M
}, M any](c creator, metric V) V {
	for _, f := range c.families {
		metric.WithLabelValues(f.Name())
	}
	return register(c, metric)
}

func register[C prometheus.Collector](c creator, metric C) C {
	c.metrics.add(metric.Collect)
	return metric
}

func (c creator) histogram(name, help string, buckets []float64) *prometheus.HistogramVec {
	opts := prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}
	return ofFamilies(c, prometheus.NewHistogramVec(opts, []string{labelFamily}))
}

func (c creator) gauge(name, help string) *prometheus.GaugeVec {
	return ofFamilies(c, prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, []string{labelFamily}))
}

func (c creator) counter(name, help string) *prometheus.CounterVec {
	opts := prometheus.CounterOpts{Name: name, Help: help}
	return ofFamilies(c, prometheus.NewCounterVec(opts, []string{labelFamily}))
}

func (c creator) plainGauge(name, help string) prometheus.Gauge {
	return register(c, prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help}))
}

func (c creator) plainCounter(name, help string) prometheus.Counter {
	return register(c, prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help}))
}

func (c creator) changes(prefix, help string) changeMetrics {
	return changeMetrics{
		total:   c.plainCounter(prefix+"total", help+"."),
		pending: c.plainGauge(prefix+"pending", help+" that no sync has handled yet."),
	}
}
