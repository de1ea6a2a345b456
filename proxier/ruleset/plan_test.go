package ruleset

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
)

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
