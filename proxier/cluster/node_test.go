package cluster

import (
	"net/netip"
	"testing"
)

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
