// Package metric creates metrics for Prometheus. Most of them have a value for
// each address family that a proxy serves.
package metric

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/nftproxy/nftproxy/nft"
)

// FamilyLabel is the label of an address family: IPv4 or IPv6, as in the API.
const FamilyLabel = "ip_family"

// Set is a set of metrics. It implements prometheus.Collector. Metrics must be
// added before it is in use. Then any goroutine can use it.
type Set struct {
	families   []nft.Family
	collectors []func(chan<- prometheus.Metric)
}

// NewSet returns an empty Set for these address families.
func NewSet(families ...nft.Family) *Set { return &Set{families: families} }

// Describe implements prometheus.Collector.
func (s *Set) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(s, ch) }

// Collect implements prometheus.Collector.
func (s *Set) Collect(ch chan<- prometheus.Metric) {
	for _, collect := range s.collectors {
		collect(ch)
	}
}

// Add adds a function that collects metrics.
func (s *Set) Add(collect func(chan<- prometheus.Metric)) {
	s.collectors = append(s.collectors, collect)
}

// FamilyHistogram adds a histogram of durations in seconds, for each family.
// Its buckets default to those from 1 ms to 16 s.
func (s *Set) FamilyHistogram(name, help string, buckets ...float64) *prometheus.HistogramVec {
	if len(buckets) == 0 {
		buckets = prometheus.ExponentialBuckets(0.001, 2, 15)
	}
	opts := prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}
	return ofFamilies(s, prometheus.NewHistogramVec(opts, []string{FamilyLabel}))
}

// FamilyGauge adds a gauge for each family.
func (s *Set) FamilyGauge(name, help string) *prometheus.GaugeVec {
	return ofFamilies(s, prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, []string{FamilyLabel}))
}

// FamilyCounter adds a counter for each family.
func (s *Set) FamilyCounter(name, help string) *prometheus.CounterVec {
	opts := prometheus.CounterOpts{Name: name, Help: help}
	return ofFamilies(s, prometheus.NewCounterVec(opts, []string{FamilyLabel}))
}

// Gauge adds a gauge.
func (s *Set) Gauge(name, help string) prometheus.Gauge {
	return add(s, prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help}))
}

// LabeledCounter adds a counter with a label, with a value of zero for each
// value of the label.
func (s *Set) LabeledCounter(name, help, label string, values ...string) *prometheus.CounterVec {
	c := add(s, prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{label}))
	for _, v := range values {
		c.WithLabelValues(v)
	}
	return c
}

// Counter adds a counter.
func (s *Set) Counter(name, help string) prometheus.Counter {
	return add(s, prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help}))
}

// ofFamilies adds a metric, and creates a value of zero for each family.
func ofFamilies[V interface {
	prometheus.Collector
	WithLabelValues(...string) M
}, M any](s *Set, metric V) V {
	for _, f := range s.families {
		metric.WithLabelValues(f.Name())
	}
	return add(s, metric)
}

func add[C prometheus.Collector](s *Set, metric C) C {
	s.Add(metric.Collect)
	return metric
}

// Values sends values of metrics of an address family, while they are
// collected.
type Values struct {
	Family nft.Family
	To     chan<- prometheus.Metric
}

// Counter sends the value of a counter. label is the name and the value of a
// label beside the family, if there is one.
func (v Values) Counter(name, help string, value float64, label ...string) {
	v.send(prometheus.CounterValue, name, help, value, label)
}

// Gauge sends the value of a gauge. label is as for Counter.
func (v Values) Gauge(name, help string, value float64, label ...string) {
	v.send(prometheus.GaugeValue, name, help, value, label)
}

func (v Values) send(typ prometheus.ValueType, name, help string, value float64, label []string) {
	names, values := []string{FamilyLabel}, []string{v.Family.Name()}
	if len(label) > 0 {
		names, values = append(names, label[0]), append(values, label[1])
	}
	v.To <- prometheus.MustNewConstMetric(prometheus.NewDesc(name, help, names, nil), typ, value, values...)
}
