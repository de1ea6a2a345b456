package proxier

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nftproxy/nftproxy/nft"
)

// kubeProxyMetrics are the metrics of kube-proxy's nftables mode, with its names, labels and buckets, so that dashboards and alerts
// that were made for it go on working. Durations are in seconds, timestamps in seconds since 1970.
type kubeProxyMetrics struct {
	syncDuration        *prometheus.HistogramVec
	fullSyncDuration    *prometheus.HistogramVec
	partialSyncDuration *prometheus.HistogramVec
	lastSynced          *prometheus.GaugeVec
	lastQueued          *prometheus.GaugeVec
	syncFailures        *prometheus.CounterVec
	cleanupFailures     *prometheus.CounterVec
	programming         *prometheus.HistogramVec
	noLocalEndpoints    *prometheus.GaugeVec
	flowsDuration       *prometheus.HistogramVec
	flowsDeleted        *prometheus.CounterVec
	serviceChanges      changeMetrics
	endpointChanges     changeMetrics
}

// changeMetrics count changes of one kind of object: all that came, and those that no sync took up yet.
type changeMetrics struct {
	total   prometheus.Counter
	pending prometheus.Gauge
}

// labelFamily is the label of an address family; its values are those of the Kubernetes API: IPv4 and IPv6.
const labelFamily = "ip_family"

func newKubeProxyMetrics() *kubeProxyMetrics {
	const subsystem = "kubeproxy"
	histogram := func(name, help string, buckets []float64) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Subsystem: subsystem, Name: name, Help: help, Buckets: buckets}, []string{labelFamily})
	}
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Subsystem: subsystem, Name: name, Help: help}, labels)
	}
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Subsystem: subsystem, Name: name, Help: help}, labels)
	}
	changes := func(kind, help string) changeMetrics {
		return changeMetrics{
			total:   counter("sync_proxy_rules_"+kind+"_changes_total", help+" that were told.").WithLabelValues(),
			pending: gauge("sync_proxy_rules_"+kind+"_changes_pending", help+" that no sync took up yet.").WithLabelValues(),
		}
	}
	short := prometheus.ExponentialBuckets(0.001, 2, 15) // 1 ms to 16 s
	return &kubeProxyMetrics{
		syncDuration:        histogram("sync_proxy_rules_duration_seconds", "Time that a sync took.", short),
		fullSyncDuration:    histogram("sync_full_proxy_rules_duration_seconds", "Time that a sync took that wrote the whole table.", short),
		partialSyncDuration: histogram("sync_partial_proxy_rules_duration_seconds", "Time that a sync took that wrote what changed.", short),
		lastSynced:          gauge("sync_proxy_rules_last_timestamp_seconds", "When a sync last succeeded.", labelFamily),
		lastQueued:          gauge("sync_proxy_rules_last_queued_timestamp_seconds", "When a sync was last asked for.", labelFamily),
		syncFailures:        counter("sync_proxy_rules_nftables_sync_failures_total", "Syncs that failed.", labelFamily),
		cleanupFailures: counter("sync_proxy_rules_nftables_cleanup_failures_total",
			"How often the kernel did not let go of chains that are not used any more.", labelFamily),
		programming: histogram("network_programming_duration_seconds",
			"Time from the change of a pod or Service, as its EndpointSlice tells, to the sync that carried it out.", programmingBuckets()),
		noLocalEndpoints: gauge("sync_proxy_rules_no_local_endpoints_total",
			"Service ports with a traffic policy Local that have endpoints, but none on this node.", "traffic_policy", labelFamily),
		flowsDuration:   histogram("conntrack_reconciler_sync_duration_seconds", "Time that a search for stale flows took.", short),
		flowsDeleted:    counter("conntrack_reconciler_deleted_entries_total", "Stale flows that were deleted.", labelFamily),
		serviceChanges:  changes("service", "Changes of Services"),
		endpointChanges: changes("endpoint", "Changes of EndpointSlices"),
	}
}

// programmingBuckets returns the buckets of kube-proxy's network_programming_duration_seconds: from 0.25 s to 5 min.
func programmingBuckets() []float64 {
	buckets := prometheus.LinearBuckets(0.25, 0.25, 2)
	buckets = append(buckets, prometheus.LinearBuckets(1, 1, 59)...)
	buckets = append(buckets, prometheus.LinearBuckets(60, 5, 12)...)
	return append(buckets, prometheus.LinearBuckets(120, 30, 7)...)
}

func (m *kubeProxyMetrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{
		m.syncDuration, m.fullSyncDuration, m.partialSyncDuration, m.lastSynced, m.lastQueued, m.syncFailures, m.cleanupFailures,
		m.programming, m.noLocalEndpoints, m.flowsDuration, m.flowsDeleted,
		m.serviceChanges.total, m.serviceChanges.pending, m.endpointChanges.total, m.endpointChanges.pending,
	}
}

// syncMetrics are the metrics of one family's syncs.
type syncMetrics struct {
	all, full, partial, programming  prometheus.Observer
	lastSynced, lastQueued           prometheus.Gauge
	failures, cleanupFailures        prometheus.Counter
	noLocalInternal, noLocalExternal prometheus.Gauge
}

func (m *kubeProxyMetrics) of(f nft.Family) *syncMetrics {
	family := string(apiFamily(f))
	return &syncMetrics{
		all:             m.syncDuration.WithLabelValues(family),
		full:            m.fullSyncDuration.WithLabelValues(family),
		partial:         m.partialSyncDuration.WithLabelValues(family),
		programming:     m.programming.WithLabelValues(family),
		lastSynced:      m.lastSynced.WithLabelValues(family),
		lastQueued:      m.lastQueued.WithLabelValues(family),
		failures:        m.syncFailures.WithLabelValues(family),
		cleanupFailures: m.cleanupFailures.WithLabelValues(family),
		noLocalInternal: m.noLocalEndpoints.WithLabelValues("internal", family),
		noLocalExternal: m.noLocalEndpoints.WithLabelValues("external", family),
	}
}

// synced takes note of a sync that began at start.
func (m *syncMetrics) synced(start time.Time, full bool, err error) {
	seconds := time.Since(start).Seconds()
	m.all.Observe(seconds)
	if full {
		m.full.Observe(seconds)
	} else {
		m.partial.Observe(seconds)
	}
	if err != nil {
		m.failures.Inc()
		return
	}
	m.lastSynced.SetToCurrentTime()
}

// noLocal counts service ports of traffic policy Local that have endpoints, but none on this node.
type noLocal struct{ internal, external int }

// add counts a plan n times; nil counts nothing.
func (c *noLocal) add(p *plan, n int) {
	if p == nil || len(p.cluster) == 0 || len(p.local) > 0 {
		return
	}
	if p.service.InternalPolicy == PolicyLocal {
		c.internal += n
	}
	if p.service.ExternalPolicy == PolicyLocal {
		c.external += n
	}
}
