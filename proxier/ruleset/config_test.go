package ruleset

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
)

func TestConfigValidate(t *testing.T) {
	bit := 32
	for _, tt := range []struct {
		config Config
		want   string
	}{
		{Config{}, ""},
		{Config{MasqueradeBit: &bit}, "masqueradeBit: 32 is not in the range from 0 to 31"},
		{Config{DetectLocal: LocalDetection{Mode: "Magic"}}, `detectLocalMode: "Magic" is not supported: ` +
			`supported are ClusterCIDR, NodeCIDR, BridgeInterface, InterfaceNamePrefix`},
		{Config{DetectLocal: LocalDetection{Mode: DetectLocalBridgeInterface}},
			`detectLocal.bridgeInterface: "" is not the name of an interface`},
		{Config{DetectLocal: LocalDetection{
			Mode:         DetectLocalClusterCIDR,
			ClusterCIDRs: []netip.Prefix{prefix("10.0.0.0/8"), prefix("11.0.0.0/8")},
		}}, "clusterCIDR: 10.0.0.0/8 and 11.0.0.0/8 are of the same family, only one a family is supported"},
	} {
		got := ""
		if err := tt.config.Validate(); err != nil {
			got = err.Error()
		}
		if got != tt.want {
			t.Errorf("got %q, want %q", got, tt.want)
		}
	}
}

func TestNodePortAddresses(t *testing.T) {
	ip := netip.MustParseAddr
	node := &cluster.Node{
		IPs:         []netip.Addr{ip("192.0.2.1"), ip("2001:db8::1")},
		NodePortIPs: []netip.Addr{ip("10.0.0.1"), ip("192.0.2.1"), ip("fd00::1")},
	}
	ipv4Node := &cluster.Node{IPs: node.IPs[:1], NodePortIPs: node.NodePortIPs[:1]}
	for _, tt := range []struct {
		primary    bool
		cidrs      string
		node       *cluster.Node
		want4      string // "all", or addresses
		want6      string
		loopback   string // the families with localhost
		uncovered6 bool
	}{
		{false, "", node, "192.0.2.1", "2001:db8::1", "", false},
		{true, "", node, "192.0.2.1", "2001:db8::1", "", false},
		{true, "", ipv4Node, "192.0.2.1", "all", "", false},
		{true, "", &cluster.Node{}, "all", "all", "", false},
		{false, "10.0.0.0/8", ipv4Node, "10.0.0.1", "all", "", true},
		{true, "10.0.0.0/8", ipv4Node, "10.0.0.1 192.0.2.1", "all", "", false},
		{true, "10.0.0.0/8 192.0.2.0/24 fd00::/8", node, "10.0.0.1 192.0.2.1", "fd00::1 2001:db8::1", "", false},
		{true, "127.0.0.0/8 ::1/128", &cluster.Node{IPs: node.IPs}, "192.0.2.1", "2001:db8::1", "ip ip6", false},
		{true, "127.0.0.0/8 ::1/128", &cluster.Node{IPs: node.IPs[:1]}, "192.0.2.1", "", "ip ip6", false},
		{false, "127.0.0.0/8 ::1/128", &cluster.Node{IPs: node.IPs}, "", "", "ip ip6", false},
		{false, "127.0.0.1/32", &cluster.Node{IPs: node.IPs}, "", "all", "ip", true},
		{false, "127.0.0.2/32 ::1/128", &cluster.Node{IPs: node.IPs}, "", "", "ip6", false},
		{false, "0.0.0.0/0 ::/0", node, "all", "all", "", false},
		{true, "0.0.0.0/0 ::/0 127.0.0.0/8", node, "all", "all", "ip", false},
	} {
		a := NodePortAddresses{Primary: tt.primary}
		for _, s := range strings.Fields(tt.cidrs) {
			a.CIDRs = append(a.CIDRs, prefix(s))
		}
		var loopback []string
		for f, want := range map[nft.Family]string{nft.IPv4: tt.want4, nft.IPv6: tt.want6} {
			got, ips := "all", a.on(f, tt.node)
			if !slices.Contains(ips, f.Unspecified()) {
				got = strings.Trim(fmt.Sprint(ips), "[]")
			}
			if got != want {
				t.Errorf("%+v %v: got %q, want %q", a, f, got, want)
			}
			if a.Loopback(f) {
				loopback = append(loopback, fmt.Sprint(f))
			}
		}
		slices.Sort(loopback)
		if got := strings.Join(loopback, " "); got != tt.loopback {
			t.Errorf("%+v: got loopback %q, want %q", a, got, tt.loopback)
		}
		if a.Covers(nft.IPv6) == tt.uncovered6 {
			t.Errorf("%+v: got IPv6 covered %v", a, !tt.uncovered6)
		}
	}
}
