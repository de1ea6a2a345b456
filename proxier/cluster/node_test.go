package cluster

import (
	"net/netip"
	"testing"
)

func TestEqualNodes(t *testing.T) {
	ips, cidrs := []netip.Addr{addr("192.0.2.1")}, []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
	for name, node := range map[string]Node{
		"Name":         {Name: "node1"},
		"Zone":         {Zone: "a"},
		"IPs":          {IPs: ips},
		"PodCIDRs":     {PodCIDRs: cidrs},
		"ServiceCIDRs": {ServiceCIDRs: cidrs},
		"NodePortIPs":  {NodePortIPs: ips},
		"LocalIPs":     {LocalIPs: ips},
	} {
		same := node
		if !node.Equal(&same) {
			t.Errorf("the same %s: got unequal", name)
		}
		if node.Equal(&Node{}) {
			t.Errorf("another %s: got equal", name)
		}
	}
}

func TestIsServiceAddr(t *testing.T) {
	n := &Node{ServiceCIDRs: []netip.Prefix{
		netip.MustParsePrefix("10.96.0.0/16"), netip.MustParsePrefix("fd00:96::/112"),
	}}
	for ip, want := range map[string]bool{
		"10.96.0.1": true, "fd00:96::1": true, "10.97.0.1": false, "fd00:97::1": false,
	} {
		if got := n.IsServiceAddr(addr(ip)); got != want {
			t.Errorf("%s: got %v, want %v", ip, got, want)
		}
	}
}
