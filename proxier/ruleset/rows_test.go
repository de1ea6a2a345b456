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
