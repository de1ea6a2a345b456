package app

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nftproxy/nftproxy/cmd/kube-proxy/config"
	"github.com/nftproxy/nftproxy/proxier/informer/apiclient"
	"github.com/nftproxy/nftproxy/proxier/manifest"
)

// newAnswersTotal returns a counter of the answers of a page of the health
// server under kube-proxy's metric name, and the callback that counts.
func newAnswersTotal(page string) (*prometheus.CounterVec, func(code int)) {
	total := prometheus.NewCounterVec(prometheus.CounterOpts{
		Subsystem: "kubeproxy", Name: "proxy_" + page + "_total",
		Help: "Number of answers of /" + page + ", by HTTP status.",
	}, []string{"code"})
	return total, func(code int) { total.WithLabelValues(strconv.Itoa(code)).Inc() }
}

// newManifestProblems returns a gauge of the problems of a folder of manifests.
func newManifestProblems(status func() *manifest.Status) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "nftproxy_manifest_problems",
		Help: "Problems of manifests: objects that are not served, or in an earlier version.",
	}, func() float64 { return float64(status().ProblemCount) })
}

// newConfigInvalid returns a gauge of the state of the configuration file.
func newConfigInvalid(o *config.Options) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "nftproxy_config_file_invalid",
		Help: "1 if the configuration file changed and cannot be used, so that a restart would fail, otherwise 0.",
	}, func() float64 {
		if o.FileProblem() != nil {
			return 1
		}
		return 0
	})
}

var (
	answeredDesc = prometheus.NewDesc("nftproxy_api_last_answer_timestamp_seconds",
		"Time of the last answer of the API server.", nil, nil)
	heardDesc = prometheus.NewDesc("nftproxy_watch_last_received_timestamp_seconds",
		"Time at which a watch last received anything. A watch without changes is renewed after 5 to 10 minutes.",
		[]string{"resource"}, nil)
)

// contactMetrics collects the times of the contact with the API server. Before
// the first answer there are none.
type contactMetrics struct{ contact *apiclient.Contact }

// Describe implements prometheus.Collector.
func (m contactMetrics) Describe(ch chan<- *prometheus.Desc) {
	ch <- answeredDesc
	ch <- heardDesc
}

// Collect implements prometheus.Collector.
func (m contactMetrics) Collect(ch chan<- prometheus.Metric) {
	state := m.contact.State()
	if state.Answered.IsZero() {
		return
	}
	seconds := func(t time.Time) float64 { return float64(t.UnixMilli()) / 1000 }
	ch <- prometheus.MustNewConstMetric(answeredDesc, prometheus.GaugeValue, seconds(state.Answered))
	for resource, heard := range state.Heard {
		ch <- prometheus.MustNewConstMetric(heardDesc, prometheus.GaugeValue, seconds(heard), resource)
	}
}
