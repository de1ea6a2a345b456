package app

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"k8s.io/klog/v2"
	configv1alpha1 "k8s.io/kube-proxy/config/v1alpha1"

	"github.com/nftproxy/nftproxy/cmd/kube-proxy/config"
)

// statusOptions returns options with every status page enabled, and with more
// flags.
func statusOptions(t *testing.T, flags ...string) *config.Options {
	t.Helper()
	o, err := config.Parse(append([]string{
		"--hostname-override=node1", "--profiling", "--feature-gates=ComponentFlagz=true,ComponentStatusz=true",
	}, flags...))
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// statusPages returns the pages of a status server with every page enabled.
func statusPages(t *testing.T, metrics ...prometheus.Collector) http.Handler {
	t.Helper()
	return pagesOf(t, statusOptions(t), metrics...)
}

func pagesOf(t *testing.T, o *config.Options, metrics ...prometheus.Collector) http.Handler {
	t.Helper()
	mux, err := newStatusMux(o, metrics...)
	if err != nil {
		t.Fatal(err)
	}
	return mux
}

func ask(pages http.Handler, method, path, accept, body string) *httptest.ResponseRecorder {
	req := httptest.NewRequest(method, path, strings.NewReader(body))
	if accept != "" {
		req.Header.Set("Accept", accept)
	}
	r := httptest.NewRecorder()
	pages.ServeHTTP(r, req)
	return r
}

// With --local-status-pages, clients of other hosts get metrics and health
// checks alone.
func TestLocalStatusPages(t *testing.T) {
	pages := pagesOf(t, statusOptions(t, "--local-status-pages"))
	public := map[string]bool{
		"/metrics": true, "/metrics/slis": true, "/healthz": true, "/healthz/ping": true, "/proxyMode": false,
		"/configz": false, "/flagz": false, "/statusz": false, "/debug/pprof/": false, "/debug/pprof/cmdline": false,
		"/metrics/../configz": false, "//configz": false,
	}
	for client, local := range map[string]bool{
		"127.0.0.1:4000": true, "127.9.9.9:4000": true, "[::1]:4000": true, "[::ffff:127.0.0.1]:4000": true,
		"192.0.2.1:4000": false, "[fd00::1]:4000": false, "[fe80::1%eth0]:4000": false, "": false,
	} {
		for path, all := range public {
			request := httptest.NewRequest("GET", path, nil)
			request.RemoteAddr = client
			response := httptest.NewRecorder()
			pages.ServeHTTP(response, request)
			if refused := response.Code == http.StatusForbidden; refused == (local || all) {
				t.Errorf("%s of %q: got status %d", path, client, response.Code)
			}
		}
	}
}

// The answers are recorded from kube-proxy v1.36.3.
func TestStatusPages(t *testing.T) {
	const text = "text/plain; charset=utf-8"
	pages := statusPages(t)
	for _, tc := range []struct {
		method, path string
		code         int
		contentType  string
		body         string // the whole body, or its beginning if it ends with …
	}{
		{"GET", "/healthz", 200, text, "ok"},
		{"POST", "/healthz", 200, text, "ok"},
		{"GET", "/healthz?verbose", 200, text, "[+]ping ok\nhealthz check passed\n"},
		{"GET", "/healthz/ping", 200, text, "ok"},
		{"GET", "/healthz/", 404, text, "404 page not found\n"},
		{"GET", "/livez", 404, text, "404 page not found\n"},
		{"GET", "/", 404, text, "404 page not found\n"},
		{"GET", "/proxyMode", 200, text, "nftables"},
		{"GET", "/configz", 200, "application/json", `{"kubeproxy.config.k8s.io":{"kind":"KubeProxyConfiguration",` +
			`"apiVersion":"kubeproxy.config.k8s.io/v1alpha1",…`},
		{"GET", "/metrics", 200, "text/plain; version=0.0.4; charset=utf-8; escaping=underscores", "# HELP …"},
		{"GET", "/debug/pprof", 302, "text/html; charset=utf-8", `<a href="/debug/pprof/">Found</a>` + ".\n\n"},
		{"GET", "/debug/pprof/", 200, "text/html; charset=utf-8", "<html>…"},
		{"GET", "/debug/pprof/goroutine?debug=1", 200, text, "goroutine profile: …"},
		{"GET", "/debug/pprof/symbol", 200, text, "num_symbols: 1\n"},
		{"GET", "/debug/pprof/cmdline", 404, text, "Unknown profile\n"},
		{"GET", "/debug/flags", 200, "text/html; charset=utf-8", "<html>…"},
		{"GET", "/debug/flags/", 200, "text/html; charset=utf-8", "<html>…"},
		{"GET", "/debug/flags/v", 406, "text/plain", "unsupported http method\n"},
	} {
		r := ask(pages, tc.method, tc.path, "", "")
		beginning, whole := strings.CutSuffix(tc.body, "…")
		ok := r.Body.String() == tc.body || whole && strings.HasPrefix(r.Body.String(), beginning)
		if r.Code != tc.code || r.Header().Get("Content-Type") != tc.contentType || !ok {
			t.Errorf("%s %s: got status %d, %q, body %.200q; want %d, %q, %q",
				tc.method, tc.path, r.Code, r.Header().Get("Content-Type"), r.Body, tc.code, tc.contentType, tc.body)
		}
	}
}

func TestDisabledStatusPages(t *testing.T) {
	pages := pagesOf(t, statusOptions(t,
		"--profiling=false", "--feature-gates=ComponentFlagz=false,ComponentStatusz=false"))
	for _, path := range []string{
		"/debug/pprof", "/debug/pprof/", "/debug/pprof/goroutine", "/debug/pprof/profile", "/debug/pprof/symbol",
		"/debug/pprof/trace", "/debug/flags", "/debug/flags/v", "/flagz", "/statusz",
	} {
		if r := ask(pages, "GET", path, "", ""); r.Code != 404 {
			t.Errorf("%s: got status %d, want 404", path, r.Code)
		}
	}
	if r := ask(pages, "GET", "/configz", "", ""); r.Code != 200 {
		t.Errorf("/configz: got status %d, want 200", r.Code)
	}
}

func TestConfigz(t *testing.T) {
	var got map[string]configv1alpha1.KubeProxyConfiguration
	r := ask(statusPages(t), "GET", "/configz", "", "")
	if err := json.Unmarshal(r.Body.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if c := got["kubeproxy.config.k8s.io"]; len(got) != 1 || c.HostnameOverride != "node1" {
		t.Errorf("got %+v", got)
	}
}

func TestSetVerbosity(t *testing.T) {
	pages := statusPages(t)
	defer ask(pages, "PUT", "/debug/flags/v", "", "0")
	for _, tc := range []struct {
		body string
		code int
		want string
	}{
		{"7", 200, "successfully set klog.logging.verbosity to 7\n"},
		{"x", 400, "strconv.ParseUint: parsing \"x\": invalid syntax\n"},
		{"", 400, "strconv.ParseUint: parsing \"\": invalid syntax\n"},
		{strings.Repeat("1", 1000), 400, "http: request body too large\n"},
	} {
		r := ask(pages, "PUT", "/debug/flags/v", "", tc.body)
		if r.Code != tc.code || r.Body.String() != tc.want || r.Header().Get("Content-Type") != "text/plain" {
			t.Errorf("%.10q: got status %d, %q; want %d, %q", tc.body, r.Code, r.Body, tc.code, tc.want)
		}
		if !klog.V(7).Enabled() || klog.V(8).Enabled() {
			t.Errorf("%.10q: verbosity is not 7", tc.body)
		}
	}
}

// scrape returns the metric families of a page by name.
func scrape(t *testing.T, pages http.Handler, path string) map[string]*dto.MetricFamily {
	t.Helper()
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(ask(pages, "GET", path, "", "").Body)
	if err != nil {
		t.Fatal(err)
	}
	return families
}

// TestMetrics checks for metrics of every Kubernetes component and for ours.
func TestMetrics(t *testing.T) {
	healthz, onHealthz := newAnswersTotal("healthz")
	livez, onLivez := newAnswersTotal("livez")
	for range 3 {
		onHealthz(200)
	}
	onHealthz(503)
	onLivez(503)
	pages := statusPages(t, healthz, livez)
	families := scrape(t, pages, "/metrics")
	for _, name := range []string{
		"kubernetes_build_info", "registered_metrics_total", "hidden_metrics_total", "disabled_metrics_total",
		"process_start_time_seconds", "process_open_fds", "process_resident_memory_bytes", "process_cpu_seconds_total",
		"go_goroutines", "go_memstats_heap_alloc_bytes", "go_gc_duration_seconds", "go_sched_latencies_seconds",
		"rest_client_exec_plugin_certificate_rotation_age",
	} {
		if families[name] == nil {
			t.Errorf("%s is missing", name)
		}
	}
	for name, want := range map[string]map[string]float64{
		"kubeproxy_proxy_healthz_total": {"200": 3, "503": 1},
		"kubeproxy_proxy_livez_total":   {"503": 1},
	} {
		got := make(map[string]float64)
		for _, m := range families[name].GetMetric() {
			if len(m.Label) == 1 && m.Label[0].GetName() == "code" {
				got[m.Label[0].GetValue()] = m.Counter.GetValue()
			}
		}
		if len(got) != len(want) || got["200"] != want["200"] || got["503"] != want["503"] {
			t.Errorf("%s: got %v, want %v", name, got, want)
		}
	}
	// A second server in the same process can serve the same collectors, but
	// one server cannot serve two collectors of one name.
	statusPages(t, healthz, livez)
	again, _ := newAnswersTotal("healthz")
	if _, err := newStatusMux(statusOptions(t), healthz, again); err == nil {
		t.Error("two collectors of one name: got no error")
	}
}

func TestServiceLevelIndicators(t *testing.T) {
	pages := statusPages(t)
	ask(pages, "DELETE", "/metrics/slis", "", "")
	for range 2 {
		ask(pages, "GET", "/healthz", "", "")
	}
	families := scrape(t, pages, "/metrics/slis")
	total := families["kubernetes_healthchecks_total"].GetMetric()
	last := families["kubernetes_healthcheck"].GetMetric()
	if len(total) != 1 || total[0].Counter.GetValue() != 2 || last[0].Gauge.GetValue() != 1 {
		t.Errorf("got %v, want 2 health checks, the last one successful", families)
	}
	if families["go_goroutines"] != nil {
		t.Error("/metrics/slis contains metrics of /metrics")
	}
	ask(pages, "DELETE", "/metrics/slis", "", "")
	if n := len(scrape(t, pages, "/metrics/slis")); n != 0 {
		t.Errorf("got %d metrics after DELETE, want 0", n)
	}
}

func TestStatusServer(t *testing.T) {
	o := statusOptions(t)
	o.Configuration.MetricsBindAddress, o.Configuration.BindAddressHardFail = "127.0.0.1:http-no", true
	s, err := newStatusServer(o)
	if err != nil {
		t.Fatal(err)
	}
	const want = "metrics server: listen tcp: lookup tcp/http-no: unknown port; set metricsBindAddress to ADDRESS:PORT"
	if err := s.Listen(t.Context()); err == nil || err.Error() != want {
		t.Errorf("Listen: got %v, want %s", err, want)
	}
	if err := s.Run(t.Context()); err == nil || err.Error() != want {
		t.Errorf("Run: got %v, want %s", err, want)
	}
}

// Requests for metrics that are not answered yet do not accumulate.
func TestConcurrentScrapes(t *testing.T) {
	started, release := make(chan struct{}, 100), make(chan struct{})
	blocking := prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "blocking"}, func() float64 {
		started <- struct{}{}
		<-release
		return 1
	})
	pages := statusPages(t, blocking)
	codes := make(chan int, maxScrapes+1)
	scrape := func() { codes <- ask(pages, "GET", "/metrics", "", "").Code }
	for range maxScrapes {
		go scrape()
		<-started
	}
	go scrape()
	if code := <-codes; code != http.StatusServiceUnavailable {
		t.Errorf("got status %d of one request more than the limit, want 503", code)
	}
	close(release)
	for range maxScrapes {
		if code := <-codes; code != http.StatusOK {
			t.Errorf("got status %d, want 200", code)
		}
	}
}

// manyMetrics are more than the buffers of a connection hold.
type manyMetrics struct{ desc *prometheus.Desc }

func (m manyMetrics) Describe(to chan<- *prometheus.Desc) { to <- m.desc }

func (m manyMetrics) Collect(to chan<- prometheus.Metric) {
	text := strings.Repeat("x", 4096)
	for i := range 5000 {
		to <- prometheus.MustNewConstMetric(m.desc, prometheus.GaugeValue, 1, strconv.Itoa(i), text)
	}
}

// Clients that do not read the metrics do not keep out a client with another
// address.
func TestUnreadMetrics(t *testing.T) {
	many := manyMetrics{prometheus.NewDesc("many", "Many.", []string{"number", "text"}, nil)}
	server := httptest.NewServer(statusPages(t, many))
	defer server.Close()
	addr := server.Listener.Addr().String()
	for range 2 * maxScrapes {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		fmt.Fprint(c, "GET /metrics HTTP/1.1\r\nHost: stalled\r\n\r\n")
		if _, err := c.Read(make([]byte, 1)); err != nil { // the answer has begun
			t.Fatal(err)
		}
	}
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}
	client := http.Client{Transport: &http.Transport{DialContext: dialer.DialContext}}
	defer client.CloseIdleConnections()
	answer, err := client.Get("http://" + addr + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if n, err := io.Copy(io.Discard, answer.Body); err != nil || answer.StatusCode != http.StatusOK || n < 20_000_000 {
		t.Errorf("got status %d, %d bytes, %v; want 200 and 20 MB", answer.StatusCode, n, err)
	}
}
