package proxier

import (
	"net/netip"
	"testing"

	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
)

// familyGaps reports each family of the node without a CIDR in the
// configuration.
func TestFamilyGaps(t *testing.T) {
	ipv4, ipv6 := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")
	cidr4, cidr6 := netip.MustParsePrefix("10.244.0.0/16"), netip.MustParsePrefix("fd00:244::/32")
	for _, tt := range []struct {
		cluster, nodePorts []netip.Prefix
		ips                []netip.Addr
		want               int
	}{
		{nil, nil, nil, 1},
		{[]netip.Prefix{cidr4}, nil, []netip.Addr{ipv4}, 0},
		{[]netip.Prefix{cidr4}, nil, []netip.Addr{ipv4, ipv6}, 1},
		{[]netip.Prefix{cidr4, cidr6}, []netip.Prefix{cidr6}, []netip.Addr{ipv4, ipv6}, 1},
		{[]netip.Prefix{cidr6}, []netip.Prefix{cidr6}, []netip.Addr{ipv4}, 2},
	} {
		c := Config{Rules: ruleset.Config{
			DetectLocal:       ruleset.LocalDetection{Mode: ruleset.DetectLocalClusterCIDR, ClusterCIDRs: tt.cluster},
			NodePortAddresses: ruleset.NodePortAddresses{CIDRs: tt.nodePorts},
		}}
		if got := c.familyGaps(&cluster.Node{IPs: tt.ips}); len(got) != tt.want {
			t.Errorf("%v: got %q, want %d gaps", tt, got, tt.want)
		}
	}
	plain := Config{NodeOptional: true, Rules: ruleset.Config{
		DetectLocal: ruleset.LocalDetection{Mode: ruleset.DetectLocalClusterCIDR},
	}}
	if got := plain.familyGaps(&cluster.Node{}); len(got) > 0 {
		t.Errorf("a machine without a cluster: got %q", got)
	}
	byNode := Config{Rules: ruleset.Config{DetectLocal: ruleset.LocalDetection{Mode: ruleset.DetectLocalNodeCIDR}}}
	node := &cluster.Node{IPs: []netip.Addr{ipv4, ipv6}, PodCIDRs: []netip.Prefix{cidr6}}
	if got := byNode.familyGaps(node); len(got) != 1 {
		t.Errorf("pod CIDRs of one family: got %q, want 1 gap", got)
	}
}
