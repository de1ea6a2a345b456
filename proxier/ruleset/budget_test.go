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
	ports, nodePorts, external, lb, ranges, endpoints int
	local                                             bool
	affinity                                          time.Duration
	slots                                             int // 0 for no hash
}

func (s sized) service() (*cluster.Service, []*cluster.Endpoint) {
	svc := &cluster.Service{
		Families: []nft.Family{nft.IPv4}, ClusterIPs: []netip.Addr{addr("10.96.0.1")}, AffinityTimeout: s.affinity,
		ExternalIPs: numbered(192, s.external), LoadBalancerIPs: numbered(198, s.lb),
	}
	if s.local {
		svc.ExternalPolicy = cluster.PolicyLocal
	}
	if s.slots != 0 {
		svc.Balance, svc.HashTableSize = cluster.BalanceSourceHash, s.slots
	}
	for _, ip := range numbered(100, s.ranges) {
		svc.SourceRanges = append(svc.SourceRanges, netip.PrefixFrom(ip, 32))
	}
	var ports []cluster.EndpointPort
	for i := range s.ports {
		p := cluster.ServicePort{Name: fmt.Sprintf("p%05d", i), Protocol: cluster.TCP, Port: uint16(i + 1)}
		if i < s.nodePorts {
			p.NodePort = uint16(30000 + i)
		}
		svc.Ports = append(svc.Ports, p)
		ports = append(ports, cluster.EndpointPort{Name: p.Name, Protocol: p.Protocol, Port: 8080})
	}
	var endpoints []*cluster.Endpoint
	for _, ip := range numbered(10, s.endpoints) {
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
func rowsOf(t *testing.T, svc *cluster.Service, endpoints []*cluster.Endpoint, share Share) (n int) {
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

func TestShareOf(t *testing.T) {
	for _, tt := range []struct {
		name  string
		sized sized
		want  string // "" if nothing is left out
	}{
		{"5,000 endpoints on three frontends", sized{ports: 1, nodePorts: 1, lb: 1, endpoints: 5000}, ""},
		{"500 ports of 100 endpoints on three frontends", sized{ports: 500, nodePorts: 500, lb: 1, endpoints: 100}, ""},
		{"the same with policy Local", sized{ports: 500, nodePorts: 500, lb: 1, endpoints: 100, local: true}, ""},
		{"300 external IPs, 20 ports, 500 endpoints", sized{ports: 20, external: 300, endpoints: 500}, ""},
		{"20,000 source ranges on 6 ports", sized{ports: 6, lb: 1, ranges: 20_000, endpoints: 3}, ""},
		{"20,000 source ranges on 20 ports", sized{ports: 20, lb: 1, ranges: 20_000, endpoints: 3},
			"10000 of 20000 source ranges"},
		{"20,000 external IPs on 50 ports", sized{ports: 50, external: 20_000},
			"1598 of 20000 external IPs and LoadBalancer IPs"},
		{"all of it", sized{ports: 50, external: 20_000, endpoints: 1000},
			"1598 of 20000 external IPs and LoadBalancer IPs, 1 of 1000 endpoints of each port"},
		{"10 ports of 2,000 endpoints with affinity", sized{ports: 10, endpoints: 2000, affinity: time.Hour}, ""},
		{"100 hashed ports on three frontends", sized{
			ports: 100, nodePorts: 100, lb: 1, endpoints: 20, slots: 251, local: true,
		}, ""},
		{"30 hashed ports with many slots", sized{ports: 30, nodePorts: 30, endpoints: 20, slots: 65536},
			"1 of 20 endpoints of each port"},
		{"2,000 ports of 200 endpoints", sized{ports: 2000, endpoints: 200}, "98 of 200 endpoints of each port"},
	} {
		svc, endpoints := tt.sized.service()
		share := ShareOf(nft.IPv4, svc, endpoints, (&Config{}).Slots(svc), DefaultServiceRows)
		if got := share.String(); got != tt.want || share.Whole() != (tt.want == "") {
			t.Errorf("%s: got %q, want %q", tt.name, got, tt.want)
		}
		if got := rowsOf(t, svc, endpoints, share); got > DefaultServiceRows || got > share.Rows {
			t.Errorf("%s: got %d rows, want at most %d and %d", tt.name, got, share.Rows, DefaultServiceRows)
		}
	}
}

// The part depends on the objects alone: one more endpoint or address moves at
// most one other, and neither their order nor the plan before matters.
func TestShareIsStable(t *testing.T) {
	svc, endpoints := sized{ports: 3, external: 40, lb: 3, ranges: 30, endpoints: 60}.service()
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

// Budgets and the order of transactions use the same estimate.
func TestPortSize(t *testing.T) {
	const limit = DefaultNumberLimit
	for name, tt := range map[string]struct {
		size portSize
		want int
	}{
		"no endpoint":          {portSize{frontends: 2, lists: 1}, 8},
		"no frontend":          {portSize{lists: 1, endpoints: 5}, 0},
		"endpoints":            {portSize{frontends: 2, lists: 1, endpoints: 5, hairpin: 5}, 8 + 10 + 5},
		"two lists":            {portSize{frontends: 2, lists: 2, endpoints: 5}, 8 + 20},
		"source ranges":        {portSize{frontends: 1, sources: 9}, 4 + 9},
		"number":               {portSize{frontends: 100, lists: 1, endpoints: 100}, 400 + limit + 100},
		"no number":            {portSize{frontends: 3, lists: 1, endpoints: 8192}, 12 + 3*8192},
		"slots":                {portSize{frontends: 2, lists: 1, endpoints: 5, slots: 251}, 8 + 2*251},
		"slots of one":         {portSize{frontends: 2, lists: 1, endpoints: 1, slots: 251}, 8 + 2},
		"affinity":             {portSize{frontends: 2, lists: 1, endpoints: 5, ruleCost: 1}, 8 + 15},
		"affinity, as written": {portSize{frontends: 2, lists: 1, endpoints: 5, ruleCost: 3}, 8 + 45},
	} {
		if got := tt.size.rows(); got != tt.want {
			t.Errorf("%s: got %d rows, want %d", name, got, tt.want)
		}
	}
}
