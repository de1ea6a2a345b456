package ruleset

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
)

// A plan has exactly the endpoints that are used.
func TestUsesOfPlans(t *testing.T) {
	rules := newRuleset(t, Config{}, nft.IPv4)
	random := rand.New(rand.NewPCG(1, 2))
	pick := func(values ...string) string { return values[random.IntN(len(values))] }
	for range 5000 {
		var specs []string
		for range random.IntN(5) {
			specs = append(specs, fmt.Sprint(96+random.IntN(4))+pick("", "@here", "@other")+","+
				pick("rs", "rs", "s", "st", "t", "")+pick("", ",z:a", ",z:b", ",z:a,n:here", ",z:a,n:other"))
		}
		in := PlanInput{
			Node: &cluster.Node{Name: "here", Zone: pick("", "a"), ServiceCIDRs: prefixes("10.244.0.96/32")},
			Service: &cluster.Service{
				Families: []nft.Family{nft.IPv4}, ClusterIPs: []netip.Addr{addr("10.96.0.1")},
				InternalPolicy: cluster.PolicyLocal,
			},
			Port: port80, Endpoints: endpointsFrom(strings.Join(specs, " ")),
		}
		plan := planOf(t, rules, in)
		var inCluster, local int
		for _, u := range EndpointUses(nft.IPv4, &in) {
			at := Target{Addr: u.Addr, Port: u.Port}.AddrPort()
			if u.Cluster == "" {
				inCluster++
			}
			if u.Local == "" {
				local++
			}
			if u.Cluster == "" && !addrPorts(plan.Cluster)[at] || u.Local == "" && !addrPorts(plan.Local)[at] {
				t.Errorf("%q: endpoint %s is used, but not in the plan", specs, at)
			}
		}
		if inCluster != len(plan.Cluster) || local != len(plan.Local) {
			t.Errorf("%q: got %d and %d used endpoints, want %d and %d",
				specs, inCluster, local, len(plan.Cluster), len(plan.Local))
		}
	}
}

func addrPorts(targets []Target) map[netip.AddrPort]bool {
	set := make(map[netip.AddrPort]bool, len(targets))
	for _, t := range targets {
		set[t.AddrPort()] = true
	}
	return set
}
