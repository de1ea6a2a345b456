package ruleset

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
)

// sized describes a Service by numbers.
type sized struct {
	Ports, NodePorts, External, LB, Ranges, Endpoints int
	Local                                             bool
	Affinity                                          time.Duration
	Slots                                             int // 0 for no hash
}

func (s sized) service() (*cluster.Service, []*cluster.Endpoint) {
	svc := &cluster.Service{
		Families: []nft.Family{nft.IPv4}, ClusterIPs: []netip.Addr{addr("10.96.0.1")}, AffinityTimeout: s.Affinity,
		ExternalIPs: numbered(192, s.External), LoadBalancerIPs: numbered(198, s.LB),
	}
	if s.Local {
		svc.ExternalPolicy = cluster.PolicyLocal
	}
	if s.Slots != 0 {
		svc.Balance, svc.HashTableSize = cluster.BalanceSourceHash, s.Slots
	}
	for _, ip := range numbered(100, s.Ranges) {
		svc.SourceRanges = append(svc.SourceRanges, netip.PrefixFrom(ip, 32))
	}
	var ports []cluster.EndpointPort
	for i := range s.Ports {
		p := cluster.ServicePort{Name: fmt.Sprintf("p%05d", i), Protocol: cluster.TCP, Port: uint16(i + 1)}
		if i < s.NodePorts {
			p.NodePort = uint16(30000 + i)
		}
		svc.Ports = append(svc.Ports, p)
		ports = append(ports, cluster.EndpointPort{Name: p.Name, Protocol: p.Protocol, Port: 8080})
	}
	var endpoints []*cluster.Endpoint
	for _, ip := range numbered(10, s.Endpoints) {
		key := cluster.EndpointKey{Addr: ip}
		endpoints = append(endpoints, &cluster.Endpoint{EndpointKey: key, Ports: ports, Ready: true})
	}
	return svc, endpoints
}

func numbered(first byte, n int) (all []netip.Addr) {
	for i := range n {
		all = append(all, netip.AddrFrom4([4]byte{first, byte(i >> 16), byte(i >> 8), byte(i)}))
	}
	return all
}

// rowsOf returns the number of rows and of rules of affinity of a Service that
// a budget covers. It does not count rules that lead to other chains.
func rowsOf(t testing.TB, svc *cluster.Service, endpoints []*cluster.Endpoint, share Share) (n int) {
	t.Helper()
	rules := newRuleset(t, Config{}, nft.IPv4)
	addrs := share.LimitAddresses(AddressesOf(nft.IPv4, svc))
	for i, port := range svc.Ports {
		plan, err := rules.MakePlan(&PlanInput{
			Node: &cluster.Node{Name: "here"}, Service: svc, Port: port, Endpoints: endpoints,
			Frontends: FrontendsAt(svc, addrs, port), Limits: share.Limits(i), Number: uint32(i + 1),
		})
		if err != nil {
			t.Fatal(err)
		}
		n += len(rules.Rows(nil, plan))
		for _, c := range rules.Chains(plan) {
			for _, r := range c.Rules {
				if r.Target() == "" {
					n++
				}
			}
		}
	}
	return n
}

// The part depends on the objects alone: one more endpoint or address moves at
// most one other, and neither their order nor the plan before matters.
func TestShareIsStable(t *testing.T) {
	svc, endpoints := sized{Ports: 3, External: 40, LB: 3, Ranges: 30, Endpoints: 60}.service()
	targets := func(endpoints []*cluster.Endpoint, budget int) map[netip.AddrPort]bool {
		share := ShareOf(nft.IPv4, svc, endpoints, cluster.DefaultHashTableSize, budget)
		var all []Target
		for _, e := range endpoints {
			all = append(all, Target{Addr: e.Addr, Port: 80})
		}
		return addrPorts(share.Limits(0).targets(all))
	}
	moved := func(a, b map[netip.AddrPort]bool) (n int) {
		for k := range a {
			if !b[k] {
				n++
			}
		}
		return n
	}
	for budget := 700; budget < 1500; budget += 37 {
		for i := range endpoints {
			all := slices.Clone(endpoints)
			slices.Reverse(all)
			with, without := targets(endpoints, budget), targets(slices.Delete(slices.Clone(endpoints), i, i+1), budget)
			if moved(with, targets(all, budget)) != 0 {
				t.Fatalf("budget %d: the order of endpoints matters", budget)
			}
			if moved(with, without) > 1 || moved(without, with) > 1 {
				t.Fatalf("budget %d, without endpoint %d: got %v, want all but one of %v", budget, i, without, with)
			}
		}
	}
	addrs := AddressesOf(nft.IPv4, svc)
	for n := range len(addrs) {
		got := Share{Addresses: n}.LimitAddresses(addrs)
		kinds := make(map[AddressKind]int)
		for _, a := range got {
			kinds[a.Kind]++
		}
		if kinds[ClusterIP] != 1 || kinds[LoadBalancerIP] != min(n, 3) || len(got) != min(n+1, len(addrs)) {
			t.Errorf("%d addresses: got %v", n, got)
		}
	}
	sources, guarded := sourcesFor(nft.IPv4, &PlanInput{Node: &cluster.Node{}, Service: svc, Limits: &Limits{1, 0}})
	if len(sources) != 0 || !guarded {
		t.Errorf("no source range within the budget: got %v, guarded %v; want none, true", sources, guarded)
	}
}

// Ports that share no endpoints get equal numbers of them, the first ports one
// more if there is room.
func TestSharesOfPorts(t *testing.T) {
	svc := &cluster.Service{Families: []nft.Family{nft.IPv4}, ClusterIPs: []netip.Addr{addr("10.96.0.1")}}
	var endpoints []*cluster.Endpoint
	for i, n := range []int{2, 50, 90, 70} {
		name := fmt.Sprint("p", i)
		svc.Ports = append(svc.Ports, cluster.ServicePort{Name: name, Protocol: cluster.TCP, Port: uint16(i + 1)})
		ports := []cluster.EndpointPort{{Name: name, Protocol: cluster.TCP, Port: 80}}
		for _, ip := range numbered(byte(10+i), n) {
			endpoints = append(endpoints, &cluster.Endpoint{EndpointKey: cluster.EndpointKey{Addr: ip}, Ports: ports})
		}
	}
	const frontends = 4 * 4
	for budget, want := range map[int][2]int{ // endpoints of each port, first ports with one more
		frontends + 2*212: {212, 0}, frontends + 2*211: {89, 2},
		frontends + 2*(2+3*40): {40, 1}, frontends + 2*(2+3*40+2): {40, 3},
	} {
		share := ShareOf(nft.IPv4, svc, endpoints, cluster.DefaultHashTableSize, budget)
		if got := [2]int{share.Endpoints, share.More}; got != want || share.Rows > budget {
			t.Errorf("budget %d: got %v with %d rows, want %v", budget, got, share.Rows, want)
		}
	}
}
