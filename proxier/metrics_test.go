package proxier

import (
	"os"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/test/must"
	"github.com/nftproxy/nftproxy/test/tabletest"
)

// TestMetricsOfKubeProxy compares names, types and labels with the metrics of
// kube-proxy v1.36.3 and v1.37.2.
func TestMetricsOfKubeProxy(t *testing.T) {
	t.Parallel()
	tabletest.NewNamespace(t)
	p := newTestProxier(t, sampleConfig(), nft.IPv4)
	p.sink.SetService(tabletest.Service("a", "10.96.0.1", nil))
	tabletest.Sync(t, p.sink)
	p.families[0].publish()
	got := gathered(t, p.Metrics())
	data, err := os.ReadFile("testdata/kube-proxy-metrics.tsv")
	must.NoError(t, err)
	count := 0
	for line := range strings.Lines(string(data)) {
		words := strings.Split(strings.TrimSpace(line), "\t")
		if len(words) != 4 || words[3] != "proxier" {
			continue
		}
		count++
		for i, version := range []string{"v1.36.3", "v1.37.2"} {
			if want := words[1+i]; want != "-" && got[words[0]] != want {
				t.Errorf("%s: got %q, want %q as in %s", words[0], got[words[0]], want, version)
			}
		}
	}
	if count < 15 {
		t.Errorf("got %d metrics, want at least 15", count)
	}
}

// gather returns the metrics of a collector, by name.
func gather(t testing.TB, c prometheus.Collector) map[string]*dto.MetricFamily {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	must.NoError(t, registry.Register(c))
	families, err := registry.Gather()
	must.NoError(t, err)
	out := make(map[string]*dto.MetricFamily)
	for _, f := range families {
		out[f.GetName()] = f
	}
	return out
}

// gathered returns the type and the labels of each metric.
func gathered(t *testing.T, c prometheus.Collector) map[string]string {
	t.Helper()
	out := make(map[string]string)
	for name, f := range gather(t, c) {
		var labels []string
		for _, l := range f.GetMetric()[0].GetLabel() {
			labels = append(labels, l.GetName())
		}
		typ := strings.ToLower(f.GetType().String())
		out[name] = strings.TrimSpace(typ + " " + strings.Join(labels, ","))
	}
	return out
}
