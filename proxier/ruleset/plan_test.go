package ruleset

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
)

func TestSourcesFor(t *testing.T) {
	lb := []netip.Addr{addr("192.0.2.1"), addr("2001:db8::1")}
	node := &cluster.Node{IPs: []netip.Addr{addr("172.30.0.11"), addr("fd00:30::11")}}
	for _, tt := range []struct {
		name    string
		ranges  []netip.Prefix
		want    []netip.Prefix
		guarded bool
	}{
		{"no ranges", nil, nil, false},
		{"none that makes sense", []netip.Prefix{}, nil, true},
		{"ranges of the other family only", []netip.Prefix{prefix("2001:db8::/32")}, nil, false},
		{"one", []netip.Prefix{prefix("198.51.100.0/24")}, []netip.Prefix{prefix("198.51.100.0/24")}, true},
		{"host bits", []netip.Prefix{prefix("198.51.100.7/24")}, []netip.Prefix{prefix("198.51.100.0/24")}, true},
		{"one within another, twice", []netip.Prefix{prefix("10.1.0.0/16"), prefix("10.0.0.0/8"), prefix("10.0.0.0/8"), prefix("11.0.0.0/8")},
			[]netip.Prefix{prefix("10.0.0.0/8"), prefix("11.0.0.0/8")}, true},
		{"all", []netip.Prefix{prefix("10.1.0.0/16"), prefix("0.0.0.0/0")}, []netip.Prefix{prefix("0.0.0.0/0")}, true},
		{"this node's address", []netip.Prefix{prefix("172.30.0.0/24")}, []netip.Prefix{prefix("172.30.0.0/24"), prefix("192.0.2.1/32")}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, guarded := sourcesFor(nft.IPv4, &cluster.Service{LoadBalancerIPs: lb, SourceRanges: tt.ranges}, node)
			if !slices.Equal(got, tt.want) || guarded != tt.guarded {
				t.Errorf("got %v, guarded %v; want %v, %v", got, guarded, tt.want, tt.guarded)
			}
		})
	}
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
		{at("192.0.2.2"), LoadBalancerIP, cluster.PolicyLocal}, // guarded by source ranges, although it is an external IP too
		{at("192.0.2.1"), ExternalIP, cluster.PolicyLocal},
		{Frontend: Frontend{Port: 30053, Proto: cluster.UDP}, Policy: cluster.PolicyLocal},
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if got := FrontendsOf(nft.IPv6, svc, port); got != nil {
		t.Errorf("IPv6 of a Service that has IPv4 only: %v", got)
	}
}
