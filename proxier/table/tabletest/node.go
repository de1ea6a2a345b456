package tabletest

import (
	"net"
	"net/netip"
	"testing"

	"github.com/vishvananda/netlink"
)

// NewNode moves the test to a network namespace of its own, in which the
// loopback interface has the addresses of the sample node and a default route.
func NewNode(t testing.TB) {
	t.Helper()
	NewNamespace(t)
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		t.Fatal(err)
	}
	if err := netlink.LinkSetUp(lo); err != nil {
		t.Fatal(err)
	}
	for _, ip := range Node().IPs {
		if err := netlink.AddrAdd(lo, &netlink.Addr{IPNet: ipNet(ip, ip.BitLen())}); err != nil {
			t.Fatal(err)
		}
		everywhere := ipNet(netip.IPv6Unspecified(), 0)
		if ip.Is4() {
			everywhere = ipNet(netip.IPv4Unspecified(), 0)
		}
		if err := netlink.RouteAdd(&netlink.Route{LinkIndex: lo.Attrs().Index, Dst: everywhere}); err != nil {
			t.Fatal(err)
		}
	}
}

func ipNet(addr netip.Addr, bits int) *net.IPNet {
	return &net.IPNet{IP: addr.AsSlice(), Mask: net.CIDRMask(bits, addr.BitLen())}
}
