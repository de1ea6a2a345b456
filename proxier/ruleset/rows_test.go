package ruleset

import (
	"net/netip"
	"testing"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
)

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }

func prefix(s string) netip.Prefix { return netip.MustParsePrefix(s) }

// Rows with a buffer allocates the name of the service port only, independent
// of the number of endpoints.
func TestRowsAllocations(t *testing.T) {
	rules := newRuleset(t, Config{}, nft.IPv4)
	port := cluster.ServicePort{Name: "http", Protocol: cluster.TCP, Port: 80}
	in := &PlanInput{
		Node: &cluster.Node{Name: "node1"},
		Service: &cluster.Service{
			Name: cluster.ServiceName{Namespace: "ns", Name: "svc"}, Families: []nft.Family{nft.IPv4},
			ClusterIPs: []netip.Addr{addr("10.96.0.1")}, Ports: []cluster.ServicePort{port},
		},
		Port: port,
	}
	in.Frontends = FrontendsOf(nft.IPv4, in.Service, port)
	for i := range 10 {
		in.Endpoints = append(in.Endpoints, &cluster.Endpoint{
			EndpointKey: cluster.EndpointKey{Addr: netip.AddrFrom4([4]byte{10, 244, 0, byte(i)})},
			Node:        "node2", Ready: true,
			Ports: []cluster.EndpointPort{{Name: "http", Protocol: cluster.TCP, Port: 8080}},
		})
	}
	plan, err := rules.MakePlan(in)
	if err != nil {
		t.Fatal(err)
	}
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
	port := cluster.ServicePort{Name: "http", Protocol: cluster.TCP, Port: 80, NodePort: 30080}
	node := &cluster.Node{Name: "here"}
	policies := []cluster.Policy{cluster.PolicyCluster, cluster.PolicyLocal}
	weights := []*int{nil, new(0), new(5)}
	for i := range 1 << 9 {
		flag := func(bit int) bool { return i>>bit&1 == 1 }
		svc := &cluster.Service{
			Name: cluster.ServiceName{Namespace: "ns", Name: "svc"}, Families: []nft.Family{nft.IPv4},
			ClusterIPs: []netip.Addr{addr("10.96.0.1")}, ExternalIPs: []netip.Addr{addr("192.0.2.1")},
			LoadBalancerIPs: []netip.Addr{addr("192.0.2.2")}, Ports: []cluster.ServicePort{port},
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
			e := &cluster.Endpoint{
				EndpointKey: cluster.EndpointKey{Addr: netip.AddrFrom4([4]byte{10, 244, 0, byte(n)})},
				Node:        "elsewhere", Ready: true,
				Ports: []cluster.EndpointPort{{Name: "http", Protocol: cluster.TCP, Port: 8080}},
			}
			if w := weights[(i>>6&3+n)%len(weights)]; w != nil {
				e.Weight = cluster.WeightOf(*w)
			}
			if n == 0 && flag(8) {
				e.Node = node.Name
			}
			endpoints = append(endpoints, e)
		}
		plan, err := rules.MakePlan(&PlanInput{
			Node: node, Service: svc, Port: port, Endpoints: endpoints, Frontends: FrontendsOf(nft.IPv4, svc, port),
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, row := range rules.Rows(nil, plan) {
			if row.Set.Verdicts {
				t.Errorf("case %#x: got row %s of a verdict map", i, row)
			}
		}
	}
}
