package ruleset

import (
	"net/netip"
	"testing"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
)

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }

func prefix(s string) netip.Prefix { return netip.MustParsePrefix(s) }

// planOf returns the plan of an IPv4 service port with all frontends of its
// Service.
func planOf(t testing.TB, rules *Ruleset, in PlanInput) *Plan {
	t.Helper()
	in.Frontends = FrontendsOf(nft.IPv4, in.Service, in.Port)
	plan, err := rules.MakePlan(&in)
	if err != nil {
		t.Fatal(err)
	}
	return plan
}

// numberedEndpoint returns a ready endpoint of port80 on another node.
func numberedEndpoint(i int) *cluster.Endpoint {
	return &cluster.Endpoint{
		EndpointKey: cluster.EndpointKey{Addr: netip.AddrFrom4([4]byte{10, 244, 0, byte(i)})}, Node: "elsewhere",
		Ready: true, Ports: []cluster.EndpointPort{{Protocol: cluster.TCP, Port: 8080}},
	}
}

// Rows with a buffer allocates the name of the service port only, independent
// of the number of endpoints.
func TestRowsAllocations(t *testing.T) {
	rules := newRuleset(t, Config{}, nft.IPv4)
	in := PlanInput{Node: &cluster.Node{Name: "here"}, Port: port80, Service: &cluster.Service{
		Name: cluster.ServiceName{Namespace: "ns", Name: "svc"}, Families: []nft.Family{nft.IPv4},
		ClusterIPs: []netip.Addr{addr("10.96.0.1")},
	}}
	for i := range 10 {
		in.Endpoints = append(in.Endpoints, numberedEndpoint(i))
	}
	plan := planOf(t, rules, in)
	var rows []nft.Row
	if n := testing.AllocsPerRun(10, func() { rows = rules.Rows(rows[:0], plan) }); n > 1 || len(rows) != 12 {
		t.Errorf("got %v allocations and %d rows, want 1 and 12", n, len(rows))
	}
}

// A change of a service port without chains of its own adds, moves and deletes
// no row of a verdict map, whatever its frontends, policies, endpoints and
// source ranges: it has no such row.
func TestNoVerdictsOfServices(t *testing.T) {
	rules := newRuleset(t, Config{}, nft.IPv4)
	port := cluster.ServicePort{Protocol: cluster.TCP, Port: 80, NodePort: 30080}
	node := &cluster.Node{Name: "here"}
	policies := []cluster.Policy{cluster.PolicyCluster, cluster.PolicyLocal}
	weights := []cluster.Weight{0, cluster.WeightOf(0), cluster.WeightOf(5)}
	for i := range 1 << 9 {
		flag := func(bit int) bool { return i>>bit&1 == 1 }
		svc := &cluster.Service{
			Families: []nft.Family{nft.IPv4}, ClusterIPs: []netip.Addr{addr("10.96.0.1")},
			ExternalIPs: []netip.Addr{addr("192.0.2.1")}, LoadBalancerIPs: []netip.Addr{addr("192.0.2.2")},
			InternalPolicy: policies[i>>0&1], ExternalPolicy: policies[i>>1&1],
		}
		if flag(2) {
			svc.SourceRanges = []netip.Prefix{prefix("198.51.100.0/24")}
		}
		if flag(3) {
			svc.Balance = cluster.BalanceSourceHash
		}
		var endpoints []*cluster.Endpoint
		for n := range i >> 4 & 3 {
			e := numberedEndpoint(n)
			e.Weight = weights[(i>>6&3+n)%len(weights)]
			if n == 0 && flag(8) {
				e.Node = node.Name
			}
			endpoints = append(endpoints, e)
		}
		plan := planOf(t, rules, PlanInput{Node: node, Service: svc, Port: port, Endpoints: endpoints})
		for _, row := range rules.Rows(nil, plan) {
			if row.Set.Verdicts {
				t.Errorf("case %#x: got row %s of a verdict map", i, row)
			}
		}
	}
}

// Keys are decoded as they were encoded.
func TestKeys(t *testing.T) {
	for f, addrs := range map[nft.Family][]netip.Addr{
		nft.IPv4: {addr("10.96.0.1"), addr("192.0.2.1"), addr("10.244.0.1")},
		nft.IPv6: {addr("fd00::1"), addr("2001:db8::1"), addr("fd01::1")},
	} {
		rules := newRuleset(t, Config{ServiceMetrics: ServiceMetricsAll}, f)
		target := Target{Addr: addrs[2], Port: 8080, Here: true}
		plan := &Plan{
			Service: &cluster.Service{}, Port: cluster.ServicePort{Protocol: cluster.UDP},
			Cluster: []Target{target, target}, Local: []Target{target},
			Sources: []netip.Prefix{netip.PrefixFrom(addrs[2], 16)}, Guarded: true,
		}
		for _, number := range []uint32{0, 7} {
			for _, frontend := range []ServedFrontend{
				{Frontend{addrs[0], 80, cluster.UDP}, ClusterIP, cluster.PolicyCluster},
				{Frontend{addrs[1], 80, cluster.UDP}, LoadBalancerIP, cluster.PolicyLocal},
				{Frontend{Port: 30080, Proto: cluster.UDP}, NodePort, cluster.PolicyLocal},
			} {
				plan.Number, plan.Frontends = number, []ServedFrontend{frontend}
				for _, row := range rules.Rows(nil, plan) {
					testKey(t, rules, row, number, frontend.Frontend, target.AddrPort())
				}
			}
		}
	}
}

// testKey tests that a row belongs to a frontend, a number, or an address.
func testKey(t *testing.T, rules *Ruleset, row nft.Row, number uint32, frontend Frontend, target netip.AddrPort) {
	t.Helper()
	if rules.IsShared(row.Set) {
		if got, ok := rules.SharedAddr(row.Set, row.Key); !ok || got != frontend.Addr && got != target.Addr() {
			t.Errorf("%s: got address %v, %v", row.Text(), got, ok)
		}
		return
	}
	if n := rules.NumberOf(row.Set, row.Key); n != 0 {
		if n != number {
			t.Errorf("%s: got number %d, want %d", row.Text(), n, number)
		}
		return
	}
	if got, ok := rules.FrontendOf(row.Set, row.Key); !ok || got != frontend {
		t.Errorf("%s: got frontend %v, %v; want %v", row.Text(), got, ok, frontend)
	}
	if row.Set.Name == OwnSet {
		if from, to, ok := TargetOf(rules.Family(), row); !ok || from != frontend || to != target {
			t.Errorf("%s: got %v to %v, %v; want %v to %v", row.Text(), from, to, ok, frontend, target)
		}
	}
	if row.Set.Name == NodePortSet {
		if port, ok := NodePortOf(row); !ok || port != frontend.Port {
			t.Errorf("%s: got NodePort %d, %v; want %d", row.Text(), port, ok, frontend.Port)
		}
	}
}
