package app

import (
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

	"github.com/nftproxy/nftproxy/cmd/kube-proxy/config"
	"github.com/nftproxy/nftproxy/test/must"
)

// statusOptions returns options with every status page enabled, and with more
// flags.
func statusOptions(t *testing.T, flags ...string) *config.Options {
	t.Helper()
	o, err := config.Parse(append([]string{
		"--hostname-override=node1", "--profiling", "--feature-gates=ComponentFlagz=true,ComponentStatusz=true",
	}, flags...))
	must.NoError(t, err)
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
	must.NoError(t, err)
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

// scrape returns the metric families of a page by name.
func scrape(t *testing.T, pages http.Handler, path string) map[string]*dto.MetricFamily {
	t.Helper()
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(ask(pages, "GET", path, "", "").Body)
	must.NoError(t, err)
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

func TestStatusServer(t *testing.T) {
	o := statusOptions(t)
	o.Configuration.MetricsBindAddress, o.Configuration.BindAddressHardFail = "127.0.0.1:http-no", true
	s, err := newStatusServer(o)
	must.NoError(t, err)
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
		must.NoError(t, err)
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
	must.NoError(t, err)
	defer answer.Body.Close()
	if n, err := io.Copy(io.Discard, answer.Body); err != nil || answer.StatusCode != http.StatusOK || n < 20_000_000 {
		t.Errorf("got status %d, %d bytes, %v; want 200 and 20 MB", answer.StatusCode, n, err)
	}
}
