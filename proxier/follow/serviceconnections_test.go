package follow

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/metric"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
	"github.com/nftproxy/nftproxy/proxier/table/tabletest"
)

// connections returns the values of the metric by service and port.
func connections(t *testing.T, c prometheus.Collector) map[string]float64 {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(c)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	values := make(map[string]float64)
	if len(families) == 0 {
		return values
	}
	for _, m := range families[0].GetMetric() {
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
	rules := tabletest.Rules()
	rules.ServiceMetrics = ruleset.ServiceMetricsAll
	reader := &counterReader{}
	config := &Config{Rules: rules, Metrics: metric.NewSet(nft.IPv4)}
	counted, err := newServiceConnections(config, reader, nft.IPv4)
	if err != nil {
		t.Fatal(err)
	}
	sink := newFollowed(t, rules, counted)
	if reader.conn, err = nft.Open(); err != nil {
		t.Fatal(err)
	}
	defer reader.close()
	sink.SetNode(tabletest.Node())
	set := func(name string, change func(*cluster.Service)) {
		sink.SetService(tabletest.Service(name, "", change))
	}
	expect := func(when string, want map[string]float64) {
		t.Helper()
		if got := connections(t, config.Metrics); !maps.Equal(got, want) {
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
	tabletest.Sync(t, sink)
	expect("first sync", map[string]float64{a: 0, b: 0})
	setPackets(t, "service-connections", map[string]int{
		"10.96.0.1 . tcp . 80#ns/a:http": 5, "192.0.2.1 . tcp . 80#ns/a:http": 20, "10.96.0.2 . tcp . 80#ns/b": 1,
	})
	setPackets(t, "nodeport-connections", map[string]int{"tcp . 30001#ns/a:http": 300})
	expect("connections", map[string]float64{a: 325, b: 1})

	set("a", func(s *cluster.Service) { s.ClusterIPs = tabletest.Addrs("10.96.0.1") })
	tabletest.Sync(t, sink)
	expect("fewer frontends", map[string]float64{a: 325, b: 1})
	setPackets(t, "service-connections", map[string]int{"10.96.0.1 . tcp . 80#ns/a:http": 7})
	expect("connections to the other", map[string]float64{a: 327, b: 1})

	tabletest.NFT(t, "", "flush", "ruleset")
	expect("deleted table", map[string]float64{a: 327, b: 1})
	if err := sink.Check(); err != nil {
		t.Fatal(err)
	}
	setPackets(t, "service-connections", map[string]int{"10.96.0.1 . tcp . 80#ns/a:http": 3})
	expect("restored table", map[string]float64{a: 330, b: 1})

	sink.DeleteService(cluster.ServiceName{Namespace: "ns", Name: "b"})
	tabletest.Sync(t, sink)
	expect("deleted Service", map[string]float64{a: 330})
	sink.DeleteService(cluster.ServiceName{Namespace: "ns", Name: "a"})
	set("b", everywhere)
	rewrite(t, sink)
	expect("another Service in a rewrite", map[string]float64{"IPv4 ns http TCP b": 0})
}

// Above the limit of rows, each namespace has a share. A namespace with few
// service ports has all of them, a namespace with many the first ones by name.
func TestServiceConnectionsShare(t *testing.T) {
	s := &serviceConnections{max: 10, ports: make(map[portKey]*portConnections)}
	add := func(namespace, name string, frontends int) {
		service := cluster.ServiceName{Namespace: namespace, Name: name}
		s.ports[portKey{service: service}] = &portConnections{
			labels: []string{namespace, name}, frontends: make([]*frontendConnections, frontends),
		}
	}
	expect := func(wantLeftOut int, want ...string) {
		t.Helper()
		ports, leftOut := s.counted()
		var got []string
		for _, p := range ports {
			got = append(got, strings.Join(p.labels, "/"))
		}
		if slices.Sort(got); !slices.Equal(got, want) || leftOut != wantLeftOut {
			t.Errorf("got %v, and %d left out, want %v, and %d", got, leftOut, want, wantLeftOut)
		}
	}
	expect(0)
	for i := range 5 {
		add("few", fmt.Sprint(i), 2)
	}
	expect(0, "few/0", "few/1", "few/2", "few/3", "few/4")
	clear(s.ports)
	add("few", "a", 1)
	add("few", "b", 2)
	for i := range 100 {
		add("many", fmt.Sprintf("%02d", i), 3)
	}
	add("many", "03", 1)
	expect(97, "few/a", "few/b", "many/00", "many/01", "many/03")
}

// Whichever rows come and go, those that stay keep their numbers.
func TestSetRows(t *testing.T) {
	set, r := &nft.Set{Name: "service-connections"}, rand.New(rand.NewPCG(1, 2))
	p, known := &portConnections{}, make(map[nft.Row]*frontendConnections)
	for range 1000 {
		var rows []nft.Row
		for _, n := range r.Perm(8)[:r.IntN(8)] {
			rows = append(rows, nft.Row{Set: set, Key: nft.Tuple{}.Integer(uint32(n))})
		}
		if r.IntN(2) == 0 {
			slices.SortFunc(rows, nft.Row.Compare)
		}
		p.setRows(rows)
		now := make(map[nft.Row]*frontendConnections)
		for i, f := range p.frontends {
			if before := known[rows[i]]; f.row != rows[i] || f.port != p || before != nil && f != before {
				t.Fatalf("row %v: got %v, had %v", rows[i], f, before)
			}
			now[f.row] = f
		}
		if known = now; len(p.frontends) != len(rows) {
			t.Fatalf("got %d rows, want %d", len(p.frontends), len(rows))
		}
	}
}

// The rows of a service port with many frontends are replaced in linear time,
// whichever of them come and go.
func BenchmarkSetRows(b *testing.B) {
	set := &nft.Set{Name: "service-connections"}
	for _, n := range []int{2_000, 20_000} {
		rows := make([]nft.Row, 2*n)
		for i := range rows {
			rows[i] = nft.Row{Set: set, Key: nft.Tuple{}.Integer(uint32(i))}
		}
		for name, changed := range map[string][]nft.Row{
			"none": rows[:n], "last": rows[:n-1], "first": rows[1:n], "all": rows[n:],
		} {
			b.Run(fmt.Sprintf("%d/%s", n, name), func(b *testing.B) {
				p := &portConnections{}
				for i := 0; b.Loop(); i++ {
					p.setRows([][]nft.Row{rows[:n], changed}[i%2])
				}
			})
		}
	}
}
