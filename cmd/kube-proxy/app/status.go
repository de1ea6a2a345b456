package app

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
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
	zpagesfeatures "k8s.io/component-base/zpages/features"
	"k8s.io/klog/v2"

	"github.com/nftproxy/nftproxy/cmd/kube-proxy/config"
	"github.com/nftproxy/nftproxy/healthcheck"
)

// proxyMode is the proxy mode that /proxyMode reports.
const proxyMode = "nftables"

// newStatusServer returns the server of /metrics and of the other pages that
// kube-proxy serves on port 10249. Paths and answers are as in kube-proxy
// v1.36. It serves metrics in addition to the metrics of every Kubernetes
// component.
func newStatusServer(o *config.Options, metrics ...prometheus.Collector) (*healthcheck.HTTPServer, error) {
	mux, err := newStatusMux(o, metrics...)
	if err != nil {
		return nil, err
	}
	return healthcheck.NewHTTPServer(healthcheck.HTTPConfig{
		Name: "metrics", Field: "metricsBindAddress", Addr: o.Configuration.MetricsBindAddress,
		HardFail: o.Configuration.BindAddressHardFail, Handler: mux,
	}), nil
}

func newStatusMux(o *config.Options, collectors ...prometheus.Collector) (http.Handler, error) {
	metrics, err := metricsHandler(collectors)
	if err != nil {
		return nil, err
	}
	configz, err := json.Marshal(map[string]any{"kubeproxy.config.k8s.io": o.Configuration})
	if err != nil {
		return nil, fmt.Errorf("encode the configuration for /configz: %w", err)
	}
	pages := map[string]http.Handler{
		"/healthz":      http.HandlerFunc(ping),
		"/healthz/ping": http.HandlerFunc(pingOnly),
		"/proxyMode":    text(proxyMode),
		"/metrics":      metrics,
		"/configz":      page("application/json", configz),
	}
	if o.FeatureGate.Enabled(zpagesfeatures.ComponentFlagz) {
		pages["/flagz"] = flagz(o.Flags)
	}
	if o.FeatureGate.Enabled(zpagesfeatures.ComponentStatusz) {
		pages["/statusz"] = statusz(slices.Collect(maps.Keys(pages)))
	}
	mux := http.NewServeMux()
	for path, handler := range pages {
		mux.Handle(path, handler)
	}
	slis.SLIMetricsWithReset{}.Install(mux) // below /metrics
	if o.Configuration.EnableProfiling {
		addProfiling(mux)
	}
	if o.LocalStatusPages {
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
	return limitScrapes(promhttp.HandlerFor(
		prometheus.Gatherers{legacyregistry.DefaultGatherer, registry},
		promhttp.HandlerOpts{ProcessStartTime: legacyregistry.GetProcessStart(), MaxRequestsInFlight: maxScrapes},
	)), nil
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
