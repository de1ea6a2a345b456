package app

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
)

// healthMetrics counts the answers of the health server under kube-proxy's
// metric names.
type healthMetrics struct {
	healthz, livez *prometheus.CounterVec
}

func newHealthMetrics() healthMetrics {
	counter := func(page string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{
			Subsystem: "kubeproxy", Name: "proxy_" + page + "_total",
			Help: "Number of answers of /" + page + ", by HTTP status.",
		}, []string{"code"})
	}
	return healthMetrics{counter("healthz"), counter("livez")}
}

func (m healthMetrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{m.healthz, m.livez}
}

// onHealthz and onLivez are the callbacks of healthcheck.ProxyServer.
func (m healthMetrics) onHealthz(code int) { m.healthz.WithLabelValues(strconv.Itoa(code)).Inc() }
func (m healthMetrics) onLivez(code int)   { m.livez.WithLabelValues(strconv.Itoa(code)).Inc() }
