package app

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"k8s.io/component-base/metrics/legacyregistry"
	_ "k8s.io/component-base/metrics/prometheus/clientgo/fifo" // informer_*
	_ "k8s.io/component-base/metrics/prometheus/restclient"    // rest_client_*
	"k8s.io/component-base/metrics/prometheus/slis"
	_ "k8s.io/component-base/metrics/prometheus/version"   // kubernetes_build_info
	_ "k8s.io/component-base/metrics/prometheus/workqueue" // workqueue_*
	"k8s.io/klog/v2"

	"github.com/nftproxy/nftproxy/healthcheck"
)

// proxyMode is the proxy mode that /proxyMode reports.
const proxyMode = "nftables"

// statusConfig configures the status server.
type statusConfig struct {
	// addr is the address to listen on (metricsBindAddress).
	addr string
	// hardFail makes an address in use an error (bindAddressHardFail).
	hardFail bool
	// metrics are served in addition to the metrics of every Kubernetes
	// component.
	metrics []prometheus.Collector
	// config is the v1alpha1 KubeProxyConfiguration that /configz shows.
	config any
	// profiling enables /debug/pprof and /debug/flags (enableProfiling).
	profiling bool
	// flags returns the flags and their values for /flagz. If it is nil,
	// there is no such page (feature gate ComponentFlagz).
	flags func() map[string]string
	// statusz enables /statusz (feature gate ComponentStatusz).
	statusz bool
	// local restricts all pages but metrics and health checks to clients on
	// loopback addresses (--local-status-pages).
	local bool
}

// newStatusServer returns the server of /metrics and of the other pages that
// kube-proxy serves on port 10249. Paths and answers are as in kube-proxy
// v1.36.
func newStatusServer(config statusConfig) (*healthcheck.HTTPServer, error) {
	mux, err := newStatusMux(config)
	if err != nil {
		return nil, err
	}
	return healthcheck.NewHTTPServer(healthcheck.HTTPConfig{
		Name: "metrics", Field: "metricsBindAddress", Addr: config.addr, HardFail: config.hardFail, Handler: mux,
	}), nil
}

// statusMux records its pages for /statusz, which lists them.
type statusMux struct {
	*http.ServeMux
	pages []string
}

func (m *statusMux) Handle(path string, handler http.Handler) {
	m.pages = append(m.pages, path)
	m.ServeMux.Handle(path, handler)
}

func newStatusMux(config statusConfig) (http.Handler, error) {
	metrics, err := metricsHandler(config.metrics)
	if err != nil {
		return nil, err
	}
	configz, err := json.Marshal(map[string]any{"kubeproxy.config.k8s.io": config.config})
	if err != nil {
		return nil, fmt.Errorf("encode the configuration for /configz: %w", err)
	}
	mux := &statusMux{ServeMux: http.NewServeMux()}
	mux.Handle("/healthz", http.HandlerFunc(ping))
	mux.Handle("/healthz/ping", http.HandlerFunc(pingOnly))
	slis.SLIMetricsWithReset{}.Install(mux)
	mux.Handle("/proxyMode", text(proxyMode))
	mux.Handle("/metrics", metrics)
	mux.Handle("/configz", page("application/json", configz))
	if config.profiling {
		addProfiling(mux.ServeMux)
	}
	if config.flags != nil {
		mux.Handle("/flagz", flagz(config.flags))
	}
	if config.statusz {
		mux.Handle("/statusz", statusz(slices.Clone(mux.pages)))
	}
	if config.local {
		return restrictToLoopback(mux), nil
	}
	return mux, nil
}

// restrictToLoopback returns a handler that serves only metrics and health
// checks to clients whose address is not a loopback address. A client of
// another host cannot complete a TCP handshake from a loopback address.
func restrictToLoopback(pages http.Handler) http.Handler {
	public := []string{"/metrics", "/metrics/slis", "/healthz", "/healthz/ping"}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		client, err := netip.ParseAddrPort(r.RemoteAddr)
		if (err != nil || !client.Addr().Unmap().IsLoopback()) && !slices.Contains(public, r.URL.Path) {
			http.Error(w, "this page is served only to clients on a loopback address", http.StatusForbidden)
			return
		}
		pages.ServeHTTP(w, r)
	})
}

// metricsHandler serves the metrics of every Kubernetes component and those
// of collectors. The collectors have a separate registry: in the process-wide
// one, a second server could not register them.
func metricsHandler(collectors []prometheus.Collector) (http.Handler, error) {
	registry := prometheus.NewRegistry()
	for _, c := range collectors {
		if err := registry.Register(c); err != nil {
			return nil, fmt.Errorf("register metrics: %w", err)
		}
	}
	return &scrapes{metrics: promhttp.HandlerFor(
		prometheus.Gatherers{legacyregistry.DefaultGatherer, registry},
		promhttp.HandlerOpts{ProcessStartTime: legacyregistry.GetProcessStart(), MaxRequestsInFlight: maxScrapes},
	)}, nil
}

// ping serves the /healthz of this server. As in kube-proxy, it always
// succeeds; the health server has another /healthz, which reports the state
// of the rules.
func ping(w http.ResponseWriter, r *http.Request) {
	if err := slis.ObserveHealthcheck(r.Context(), "ping", "healthz", slis.Success); err != nil {
		klog.ErrorS(err, "Failed to count a health check")
	}
	if r.URL.Query().Has("verbose") {
		text("[+]ping ok\nhealthz check passed\n").ServeHTTP(w, r)
		return
	}
	text("ok").ServeHTTP(w, r)
}

func pingOnly(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "ok") }

func text(body string) http.Handler { return page("text/plain; charset=utf-8", []byte(body)) }

// page serves a body that does not change.
func page(contentType string, body []byte) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", contentType)
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Write(body)
	})
}
