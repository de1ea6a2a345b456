package proxier

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
	"github.com/nftproxy/nftproxy/proxier/table/tabletest"
)

// connections returns the values of the metric by service and port.
func connections(t *testing.T, p *Proxier) map[string]float64 {
	t.Helper()
	values := make(map[string]float64)
	for _, m := range gather(t, p.Metrics())["nftproxy_service_connections_total"].GetMetric() {
		var labels []string
		for _, l := range m.GetLabel() {
			labels = append(labels, l.GetValue())
		}
		values[strings.Join(labels, " ")] = m.GetCounter().GetValue()
	}
	return values
}

// setPackets sets the numbers of rows of a set, as if packets had been counted.
func setPackets(t *testing.T, set string, numbers map[string]int) {
	t.Helper()
	for row, n := range numbers {
		key, comment, _ := strings.Cut(row, "#")
		tabletest.LoadNFT(t, fmt.Sprintf(
			"delete element ip kube-proxy %s { %s }\n"+
				"add element ip kube-proxy %[1]s { %[2]s counter packets %d bytes 1 comment %q }",
			set, key, n, comment))
	}
}

// The number of a service port is the sum of its frontends, and does not
// decrease when it loses one, or when the table is deleted.
func TestServiceConnections(t *testing.T) {
	tabletest.NewNamespace(t)
	config := sampleConfig()
	config.Rules.ServiceMetrics = ruleset.ServiceMetricsAll
	p := newTestProxier(t, config, nft.IPv4)
	p.sink.SetNode(tabletest.Node())
	set := func(name string, change func(*cluster.Service)) {
		p.sink.SetService(tabletest.Service(name, "", change))
	}
	expect := func(when string, want map[string]float64) {
		t.Helper()
		if got := connections(t, p); !maps.Equal(got, want) {
			t.Errorf("%s: got %v, want %v", when, got, want)
		}
	}
	everywhere := func(s *cluster.Service) {
		s.ClusterIPs, s.ExternalIPs = tabletest.Addrs("10.96.0.1"), tabletest.Addrs("192.0.2.1")
		s.Ports[0].NodePort = 30001
	}
	const a, b = "IPv4 ns http TCP a", "IPv4 ns 80 TCP b"
	set("a", everywhere)
	set("b", func(s *cluster.Service) {
		s.ClusterIPs, s.Ports[0].Name = tabletest.Addrs("10.96.0.2"), ""
	})
	tabletest.Sync(t, p.sink)
	expect("first sync", map[string]float64{a: 0, b: 0})
	setPackets(t, "service-connections", map[string]int{
		"10.96.0.1 . tcp . 80#ns/a:http": 5, "192.0.2.1 . tcp . 80#ns/a:http": 20, "10.96.0.2 . tcp . 80#ns/b": 1,
	})
	setPackets(t, "nodeport-connections", map[string]int{"tcp . 30001#ns/a:http": 300})
	expect("connections", map[string]float64{a: 325, b: 1})

	set("a", func(s *cluster.Service) { s.ClusterIPs = tabletest.Addrs("10.96.0.1") })
	tabletest.Sync(t, p.sink)
	expect("fewer frontends", map[string]float64{a: 325, b: 1})
	setPackets(t, "service-connections", map[string]int{"10.96.0.1 . tcp . 80#ns/a:http": 7})
	expect("connections to the other", map[string]float64{a: 327, b: 1})

	tabletest.NFT(t, "", "flush", "ruleset")
	expect("deleted table", map[string]float64{a: 327, b: 1})
	if err := p.families[0].table.Check(); err != nil {
		t.Fatal(err)
	}
	setPackets(t, "service-connections", map[string]int{"10.96.0.1 . tcp . 80#ns/a:http": 3})
	expect("restored table", map[string]float64{a: 330, b: 1})

	p.sink.DeleteService(cluster.ServiceName{Namespace: "ns", Name: "b"})
	tabletest.Sync(t, p.sink)
	expect("deleted Service", map[string]float64{a: 330})
	p.sink.DeleteService(cluster.ServiceName{Namespace: "ns", Name: "a"})
	set("b", everywhere)
	rewriteTable(t, p)
	expect("another Service in a rewrite", map[string]float64{"IPv4 ns http TCP b": 0})
}
