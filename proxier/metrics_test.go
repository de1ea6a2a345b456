package proxier

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/table/tabletest"
)

// The numbers of the tables are metrics.
func TestMetrics(t *testing.T) {
	tabletest.NewNamespace(t)
	p := newTestProxier(t, sampleConfig(), nft.IPv4)
	sink, m := p.sink, p.metrics
	refused := tabletest.Service(strings.Repeat("x", 300), "10.96.0.66", func(s *cluster.Service) {
		s.AffinityTimeout = time.Second // the name of its chain is too long
	})
	sink.SetService(refused)
	tabletest.SetEndpoint(sink, refused.Name, tabletest.Endpoint("10.244.0.66"))
	sink.SetService(tabletest.Service("a", "10.96.0.1", nil))
	sink.SetService(tabletest.Service("b", "10.96.0.1", nil))
	tabletest.Sync(t, sink)
	publish(p)
	want := `
# HELP nftproxy_conflicts_total How often a service port lost an address and port to another one.
# TYPE nftproxy_conflicts_total counter
nftproxy_conflicts_total{ip_family="IPv4"} 1
# HELP nftproxy_contested_frontends Addresses and ports that several service ports claim, or one and the node.
# TYPE nftproxy_contested_frontends gauge
nftproxy_contested_frontends{ip_family="IPv4"} 1
# HELP nftproxy_refused_service_ports Service ports that keep old rules because the kernel refuses new ones.
# TYPE nftproxy_refused_service_ports gauge
nftproxy_refused_service_ports{ip_family="IPv4"} 1
`
	if err := testutil.CollectAndCompare(m, strings.NewReader(want),
		"nftproxy_conflicts_total", "nftproxy_contested_frontends", "nftproxy_refused_service_ports"); err != nil {
		t.Error(err)
	}
	valid := *refused
	valid.AffinityTimeout = 0
	sink.SetService(&valid)
	tabletest.Sync(t, sink)
	publish(p)
	want = `
# HELP nftproxy_refused_service_ports Service ports that keep old rules because the kernel refuses new ones.
# TYPE nftproxy_refused_service_ports gauge
nftproxy_refused_service_ports{ip_family="IPv4"} 0
`
	if err := testutil.CollectAndCompare(m, strings.NewReader(want), "nftproxy_refused_service_ports"); err != nil {
		t.Error(err)
	}
}

// TestMetricsOfKubeProxy compares names, types and labels with the metrics of
// kube-proxy v1.36.3 and v1.37.
func TestMetricsOfKubeProxy(t *testing.T) {
	tabletest.NewNamespace(t)
	p := newTestProxier(t, sampleConfig(), nft.IPv4)
	p.sink.SetService(tabletest.Service("a", "10.96.0.1", nil))
	tabletest.Sync(t, p.sink)
	publish(p)
	got := gathered(t, p.Metrics())
	data, err := os.ReadFile("testdata/kube-proxy-metrics.tsv")
	if err != nil {
		t.Fatal(err)
	}
	count := 0
	for line := range strings.Lines(string(data)) {
		words := strings.Split(strings.TrimSpace(line), "\t")
		if len(words) != 4 || words[3] != "proxier" {
			continue
		}
		count++
		for i, version := range []string{"v1.36.3", "v1.37"} {
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
func gather(t *testing.T, c prometheus.Collector) map[string]*dto.MetricFamily {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	if err := registry.Register(c); err != nil {
		t.Fatal(err)
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
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

// Rewrites are counted by cause, and a damaged table is healthy again after its
// repair.
func TestStateMetrics(t *testing.T) {
	tabletest.NewNamespace(t)
	p := newTestProxier(t, sampleConfig(), nft.IPv4)
	expect := func(when, healthy, started, damaged string) {
		t.Helper()
		publish(p)
		want := `
# HELP nftproxy_healthy 0 if a change has been waiting too long for a successful sync, 1 otherwise.
# TYPE nftproxy_healthy gauge
nftproxy_healthy{ip_family="IPv4"} ` + healthy + `
# HELP nftproxy_rewrites_total Syncs that wrote the whole table, by cause.
# TYPE nftproxy_rewrites_total counter
nftproxy_rewrites_total{cause="damage",ip_family="IPv4"} ` + damaged + `
nftproxy_rewrites_total{cause="failure",ip_family="IPv4"} 0
nftproxy_rewrites_total{cause="node",ip_family="IPv4"} 0
nftproxy_rewrites_total{cause="start",ip_family="IPv4"} ` + started + `
nftproxy_rewrites_total{cause="unused",ip_family="IPv4"} 0
`
		err := testutil.CollectAndCompare(p.Metrics(), strings.NewReader(want), "nftproxy_healthy",
			"nftproxy_rewrites_total")
		if err != nil {
			t.Errorf("%s: %v", when, err)
		}
	}
	expect("before the first sync", "1", "0", "0")
	if err := p.families[0].health.during(p.sink.Sync); err != nil {
		t.Fatal(err)
	}
	expect("first sync", "1", "1", "0")
	tabletest.NFT(t, "", "flush", "ruleset")
	if err := p.families[0].table.Check(); err != nil {
		t.Fatal(err)
	}
	expect("repair", "1", "1", "1")
	usage := gather(t, p.Metrics())
	for _, name := range []string{"nftproxy_conntrack_entries", "nftproxy_conntrack_max"} {
		if usage[name] == nil {
			t.Errorf("got no metric %s", name)
		}
	}
}
