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

// usesOf describes the endpoints that are not used: last byte, reason for
// policy Cluster, reason for policy Local.
func usesOf(in *PlanInput) string {
	var out []string
	for _, u := range EndpointUses(nft.IPv4, in) {
		if u.Cluster != "" || u.Local != "" {
			out = append(out, fmt.Sprintf("%d %s/%s", u.Addr.As4()[3], u.Cluster, u.Local))
		}
	}
	return strings.Join(out, ", ")
}

func TestUnusedEndpoints(t *testing.T) {
	node := &cluster.Node{Name: "here", Zone: "a", ServiceCIDRs: prefixes("10.244.0.96/28")}
	for _, tt := range []struct{ name, endpoints, want string }{
		{"all are used", "1@here,rs 2@here,rs", ""},
		{"another node", "1@here,rs 2@other,rs 3,rs", "2 /OtherNode, 3 /OtherNode"},
		{"conditions", "1@here,rs 2@here,s 3@here,st 4@here,t 5@other,",
			"2 NotReady/NotReady, 3 Terminating/Terminating, 4 Terminating/Terminating, 5 NotReady/OtherNode"},
		{"terminating endpoints if none is ready", "1@here,st 2@here,s 3@here,t",
			"2 NotReady/NotReady, 3 Terminating/Terminating"},
		{"the fallback for Local", "1@here,st 2@other,rs", "1 Terminating/, 2 /OtherNode"},
		{"hints for zones", "1@here,rs,z:b 2@here,rs,z:a", "1 ZoneHints/"},
		{"hints for nodes", "1@here,rs,z:a,n:other 2@here,rs,z:b,n:here", "1 NodeHints/"},
		{"a service CIDR", "97@here,rs 1@here,rs", "97 ServiceCIDR/ServiceCIDR"},
		{"duplicates", "1@here,rs 1@here,", "1 Duplicate/Duplicate"},
	} {
		in := &PlanInput{Node: node, Port: port80, Endpoints: endpointsFrom(tt.endpoints)}
		if got := usesOf(in); got != tt.want {
			t.Errorf("%s: got %q, want %q", tt.name, got, tt.want)
		}
	}
	other := port80
	other.Name = "other"
	in := &PlanInput{Node: node, Port: other, Endpoints: endpointsFrom("1@here,rs")}
	if got, want := usesOf(in), "1 NoPort/NoPort"; got != want {
		t.Errorf("another port: got %q, want %q", got, want)
	}
}

// A plan has exactly the endpoints that are used.
func TestUsesOfPlans(t *testing.T) {
	rules, err := New(Config{}, nft.IPv4)
	if err != nil {
		t.Fatal(err)
	}
	random := rand.New(rand.NewPCG(1, 2))
	pick := func(values ...string) string { return values[random.IntN(len(values))] }
	for range 5000 {
		var specs []string
		for range random.IntN(5) {
			specs = append(specs, fmt.Sprint(96+random.IntN(4))+pick("", "@here", "@other")+","+
				pick("rs", "rs", "s", "st", "t", "")+pick("", ",z:a", ",z:b", ",z:a,n:here", ",z:a,n:other"))
		}
		in := &PlanInput{
			Node: &cluster.Node{Name: "here", Zone: pick("", "a"), ServiceCIDRs: prefixes("10.244.0.96/32")},
			Service: &cluster.Service{
				Families: []nft.Family{nft.IPv4}, ClusterIPs: []netip.Addr{addr("10.96.0.1")},
				InternalPolicy: cluster.PolicyLocal,
			},
			Port: port80, Endpoints: endpointsFrom(strings.Join(specs, " ")),
		}
		in.Frontends = FrontendsOf(nft.IPv4, in.Service, in.Port)
		plan, err := rules.MakePlan(in)
		if err != nil {
			t.Fatal(err)
		}
		var inCluster, local int
		for _, u := range EndpointUses(nft.IPv4, in) {
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
