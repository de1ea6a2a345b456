package ruleset

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
)

func TestSourcesFor(t *testing.T) {
	lb := []netip.Addr{addr("192.0.2.1"), addr("2001:db8::1")}
	node := &cluster.Node{IPs: []netip.Addr{addr("172.30.0.11"), addr("fd00:30::11")}}
	for _, tt := range []struct {
		name         string
		ranges, want string // separated by spaces
		guarded      bool
	}{
		{"ranges of the other family only", "2001:db8::/32", "", false},
		{"one", "198.51.100.0/24", "198.51.100.0/24", true},
		{"host bits", "198.51.100.7/24", "198.51.100.0/24", true},
		{"contained and equal ranges", "10.1.0.0/16 10.0.0.0/8 10.0.0.0/8 11.0.0.0/8", "10.0.0.0/8 11.0.0.0/8", true},
		{"all clients", "10.1.0.0/16 0.0.0.0/0", "", false},
		{"the address of this node", "172.30.0.0/24", "172.30.0.0/24 192.0.2.1/32", true},
	} {
		ranges, want := prefixes(tt.ranges), prefixes(tt.want)
		svc := &cluster.Service{LoadBalancerIPs: lb, SourceRanges: ranges}
		got, guarded := sourcesFor(nft.IPv4, &PlanInput{Node: node, Service: svc})
		if !slices.Equal(got, want) || guarded != tt.guarded {
			t.Errorf("%s: got %v, guarded %v; want %v, %v", tt.name, got, guarded, want, tt.guarded)
		}
	}
	for _, tt := range []struct {
		name    string
		ranges  []netip.Prefix
		guarded bool
	}{
		{"no restriction", nil, false},
		{"no valid range", []netip.Prefix{}, true},
		{"IPv4-mapped", prefixes("::ffff:10.0.0.0/104"), true},
	} {
		svc := &cluster.Service{LoadBalancerIPs: lb, SourceRanges: tt.ranges}
		got, guarded := sourcesFor(nft.IPv4, &PlanInput{Node: node, Service: svc})
		if got != nil || guarded != tt.guarded {
			t.Errorf("%s: got %v, guarded %v; want none, %v", tt.name, got, guarded, tt.guarded)
		}
	}
}

// prefixes parses CIDRs that are separated by spaces.
func prefixes(values string) (all []netip.Prefix) {
	for _, v := range strings.Fields(values) {
		all = append(all, prefix(v))
	}
	return all
}

func TestFrontendsOf(t *testing.T) {
	svc := &cluster.Service{
		Families:   []nft.Family{nft.IPv4},
		ClusterIPs: []netip.Addr{addr("10.96.0.1"), addr("fd00:96::1")}, ExternalPolicy: cluster.PolicyLocal,
		ExternalIPs:     []netip.Addr{addr("192.0.2.1"), addr("192.0.2.2"), addr("2001:db8::1")},
		LoadBalancerIPs: []netip.Addr{addr("192.0.2.2")},
	}
	port := cluster.ServicePort{Protocol: cluster.UDP, Port: 53, NodePort: 30053}
	got := FrontendsOf(nft.IPv4, svc, port)
	at := func(ip string) Frontend { return Frontend{addr(ip), 53, cluster.UDP} }
	want := []ServedFrontend{
		{at("10.96.0.1"), ClusterIP, cluster.PolicyCluster},
		{at("192.0.2.2"), LoadBalancerIP, cluster.PolicyLocal}, // the external IP is the same
		{at("192.0.2.1"), ExternalIP, cluster.PolicyLocal},
		{Frontend{Port: 30053, Proto: cluster.UDP}, NodePort, cluster.PolicyLocal},
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if got := FrontendsOf(nft.IPv6, svc, port); got != nil {
		t.Errorf("IPv6 of an IPv4 Service: got %v, want none", got)
	}
}
