package app

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/pprof"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"k8s.io/component-base/logs"
	"k8s.io/component-base/metrics/legacyregistry"
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // rest_client_* and workqueue_*
	"k8s.io/component-base/metrics/prometheus/slis"
	_ "k8s.io/component-base/metrics/prometheus/version" // kubernetes_build_info
	"k8s.io/klog/v2"

	"github.com/nftproxy/nftproxy/healthcheck"
)

// proxyMode is kube-proxy's name for what this command does.
const proxyMode = "nftables"

// statusConfig configures the status server.
type statusConfig struct {
	// addr is where to listen (metricsBindAddress), hardFail whether an address that is taken ends the command (bindAddressHardFail).
	addr     string
	hardFail bool
	// metrics are shown besides those that every Kubernetes component has.
	metrics []prometheus.Collector
	// config is what the command works by: a KubeProxyConfiguration of v1alpha1, with its kind.
	config any
	// profiling adds profiles and the change of the log's verbosity (enableProfiling).
	profiling bool
	// flags returns the flags and their values. nil: they are not shown (feature gate ComponentFlagz).
	flags func() map[string]string
	// statusz shows versions and times (feature gate ComponentStatusz).
	statusz bool
}

// newStatusServer returns the server of /metrics and of the other pages that kube-proxy has on port 10249. Paths and answers are those of
// kube-proxy 1.36.
func newStatusServer(config statusConfig) (*healthcheck.HTTPServer, error) {
	mux, err := newStatusMux(config)
	if err != nil {
		return nil, err
	}
	return healthcheck.NewHTTPServer(healthcheck.HTTPConfig{
		Name: "metrics", Field: "metricsBindAddress", Addr: config.addr, HardFail: config.hardFail, Handler: mux,
	}), nil
}

// statusMux knows its pages, so that one of them can list the others.
type statusMux struct {
	*http.ServeMux
	pages []string
}

// Handle adds a page.
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
		return nil, fmt.Errorf("show the configuration: %w", err)
	}
	mux := &statusMux{ServeMux: http.NewServeMux()}
	mux.Handle("/healthz", http.HandlerFunc(ping))
	mux.Handle("/healthz/ping", http.HandlerFunc(pingOnly))
	slis.SLIMetricsWithReset{}.Install(mux)
	mux.Handle("/proxyMode", text(proxyMode))
	mux.Handle("/metrics", metrics)
	mux.Handle("/configz", jsonText(configz))
	if config.profiling {
		addProfiling(mux.ServeMux)
	}
	if config.flags != nil {
		mux.Handle("/flagz", flagz(config.flags))
	}
	if config.statusz {
		mux.Handle("/statusz", statusz(slices.Clone(mux.pages)))
	}
	return mux, nil
}

// metricsHandler shows the metrics of every Kubernetes component and those of the collectors. The latter have a registry of their own,
// since that of the former is one for the whole process, which keeps what it has.
func metricsHandler(collectors []prometheus.Collector) (http.Handler, error) {
	registry := prometheus.NewRegistry()
	for _, c := range collectors {
		if err := registry.Register(c); err != nil {
			return nil, fmt.Errorf("register metrics: %w", err)
		}
	}
	return promhttp.HandlerFor(
		prometheus.Gatherers{legacyregistry.DefaultGatherer, registry},
		promhttp.HandlerOpts{ProcessStartTime: legacyregistry.GetProcessStart()},
	), nil
}

// ping says that the server answers, which is all that this /healthz means, in kube-proxy too. /healthz of the health server says more.
func ping(w http.ResponseWriter, r *http.Request) {
	if err := slis.ObserveHealthcheck(r.Context(), "ping", "healthz", slis.Success); err != nil {
		klog.ErrorS(err, "Health check is not counted")
	}
	if r.URL.Query().Has("verbose") {
		text("[+]ping ok\nhealthz check passed\n").ServeHTTP(w, r)
		return
	}
	text("ok").ServeHTTP(w, r)
}

func pingOnly(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "ok") }

func text(body string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		io.WriteString(w, body)
	})
}

func jsonText(body []byte) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Write(body)
	})
}

// addProfiling adds the profiles of the Go runtime, and a page to change the verbosity of the log. The command line is not among
// them, as in kube-proxy.
func addProfiling(mux *http.ServeMux) {
	mux.Handle("/debug/pprof", http.RedirectHandler("/debug/pprof/", http.StatusFound))
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	mux.HandleFunc("/debug/flags", listDebugFlags)
	mux.HandleFunc("/debug/flags/", listDebugFlags)
	mux.HandleFunc("/debug/flags/v", setVerbosity)
}

// listDebugFlags says which flags can be changed while the command runs.
func listDebugFlags(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	io.WriteString(w, "<html><head><title>/debug/flags/</title></head><body><p>Flags that a PUT changes:</p>"+
		"<ul><li>/debug/flags/v</li></ul></body></html>\n")
}

// maxVerbosity is room for a number.
const maxVerbosity = 64

// setVerbosity makes the log as verbose as the body of a PUT says.
func setVerbosity(w http.ResponseWriter, r *http.Request) {
	code, answer := http.StatusNotAcceptable, "unsupported http method"
	if r.Method == http.MethodPut {
		code, answer = http.StatusOK, ""
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxVerbosity))
		if err == nil {
			answer, err = logs.GlogSetter(string(body))
		}
		if err != nil {
			code, answer = http.StatusBadRequest, err.Error()
		}
	}
	w.Header().Set("Content-Type", "text/plain")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(code)
	fmt.Fprintln(w, answer)
}
