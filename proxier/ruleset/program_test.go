package ruleset

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
)

// nodeport-ips exists and has rows only if NodePorts listen on some
// addresses.
func TestProgramOfNodePortAddresses(t *testing.T) {
	all := []netip.Addr{addr("0.0.0.0")}
	node := &cluster.Node{
		IPs:         []netip.Addr{addr("192.0.2.1"), addr("2001:db8::1")},
		NodePortIPs: []netip.Addr{addr("10.0.0.1"), addr("127.0.0.1"), addr("fd00::1"), addr("10.0.0.2")},
	}
	for _, tt := range []struct {
		name  string
		cidrs string
		node  *cluster.Node
		want  []netip.Addr
	}{
		{"the primary address", "", node, []netip.Addr{addr("192.0.2.1")}},
		{"no primary address is known", "", &cluster.Node{}, all},
		{"addresses within a CIDR", "10.0.0.0/8", node, []netip.Addr{addr("10.0.0.1"), addr("10.0.0.2")}},
		{"no address within a CIDR", "10.0.0.0/8", &cluster.Node{}, []netip.Addr{}},
		{"CIDRs of the other family only", "fd00::/8", node, all},
		{"a CIDR with all addresses", "10.0.0.0/8 0.0.0.0/0", node, all},
	} {
		rules := newRuleset(t, Config{NodePortAddresses: NodePortAddresses{CIDRs: prefixes(tt.cidrs)}}, nft.IPv4)
		p := rules.MakeProgram(tt.node)
		if got := p.NodePortAddrs; got == nil || !slices.Equal(got, tt.want) {
			t.Errorf("%s: got addresses %v, want %v", tt.name, got, tt.want)
		}
		want := rules.layout.fixedRows()
		isAll := slices.Equal(tt.want, all)
		for _, ip := range tt.want {
			if !isAll {
				want = append(want, nft.Row{Set: rules.layout.nodePortIPs, Key: nft.Tuple{}.Addr(ip)})
			}
		}
		if !slices.Equal(p.Rows, want) {
			t.Errorf("%s: got rows %v, want %v", tt.name, p.Rows, want)
		}
		if exists := slices.Contains(p.Table.Sets, rules.layout.nodePortIPs); exists == isAll {
			t.Errorf("%s: got set nodeport-ips %v, want %v", tt.name, exists, !isAll)
		}
	}
}
