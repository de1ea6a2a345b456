package tabletest

import (
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/nft"
)

// NewNode moves the test to a network namespace of its own, in which the
// loopback interface has the addresses of the sample node and a default route.
// It forwards packets, as every node does.
func NewNode(t testing.TB) {
	t.Helper()
	NewNamespace(t)
	for _, file := range []string{"ipv4/ip_forward", "ipv6/conf/all/forwarding"} {
		if err := os.WriteFile("/proc/sys/net/"+file, []byte("1"), 0); err != nil {
			t.Fatal(err)
		}
	}
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		t.Fatal(err)
	}
	if err := netlink.LinkSetUp(lo); err != nil {
		t.Fatal(err)
	}
	for _, ip := range Node().IPs {
		addr := &netlink.Addr{IPNet: ipNet(ip, ip.BitLen()), Flags: unix.IFA_F_NODAD}
		if err := netlink.AddrAdd(lo, addr); err != nil {
			t.Fatal(err)
		}
		waitLocal(t, ip)
		everywhere := ipNet(nft.FamilyOf(ip).Unspecified(), 0)
		if err := netlink.RouteAdd(&netlink.Route{LinkIndex: lo.Attrs().Index, Dst: everywhere}); err != nil {
			t.Fatal(err)
		}
	}
}

// waitLocal waits until the kernel has the route of an address of this node. It
// adds routes of IPv6 addresses asynchronously.
func waitLocal(t testing.TB, ip netip.Addr) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		routes, err := netlink.RouteGet(ip.AsSlice())
		if err == nil && len(routes) > 0 && routes[0].Type == unix.RTN_LOCAL {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("no local route to %s: got %v and error %v", ip, routes, err)
		}
	}
}

func ipNet(addr netip.Addr, bits int) *net.IPNet {
	return &net.IPNet{IP: addr.AsSlice(), Mask: net.CIDRMask(bits, addr.BitLen())}
}
