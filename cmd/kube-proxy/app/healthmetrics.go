package app

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
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
