package probe

import (
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/eject"
	"github.com/nftproxy/nftproxy/test/lab/nstest"
	"github.com/nftproxy/nftproxy/test/must"
)

// A SYN-ACK and a RST are answers. An endpoint that is not there is lost.
// Without a route, or to an address that no endpoint has, the probe fails.
func TestSend(t *testing.T) {
	nstest.Enter(t)
	addNetwork(t)
	for addr, want := range map[string]eject.Result{
		"192.0.2.1:80": eject.Answered, "[fd01::1]:80": eject.Answered, // listens
		"192.0.2.1:81": eject.Answered, "[fd01::1]:81": eject.Answered, // RST
		"192.0.2.9:80": eject.Lost, "[fd01::9]:80": eject.Lost, // no neighbor
		"198.51.100.1:80": eject.Failed, "[fd02::1]:80": eject.Failed, // no route
		"127.0.0.1:80": eject.Failed, "[::1]:80": eject.Failed, "169.254.169.254:80": eject.Failed,
		"[fe80::1]:80": eject.Failed, "224.0.0.1:80": eject.Failed, "0.0.0.0:80": eject.Failed,
	} {
		probe := eject.Probe{Endpoint: eject.Endpoint{
			Port: eject.Port{Family: nft.IPv4, Service: cluster.ServiceName{Namespace: "shop", Name: "web"}},
			Addr: netip.MustParseAddrPort(addr),
		}}
		results := make(chan Outcome, 1)
		Send(probe, results)
		if got := <-results; got != (Outcome{probe, want}) {
			t.Errorf("%s: got %v, want %s", addr, got, want)
		}
	}
}

// addNetwork adds an interface with two networks, without any neighbor, and a
// listener on port 80 of its addresses.
func addNetwork(t *testing.T) {
	link := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "net"}, PeerName: "peer"}
	must.NoError(t, netlink.LinkAdd(link))
	for _, name := range []string{"lo", "net", "peer"} {
		link, err := netlink.LinkByName(name)
		must.NoError(t, err)
		must.NoError(t, netlink.LinkSetUp(link))
	}
	for _, addr := range []string{"192.0.2.1", "fd01::1"} {
		ip, bits := netip.MustParseAddr(addr), 24
		if ip.Is6() {
			bits = 64
		}
		ipNet := &net.IPNet{IP: ip.AsSlice(), Mask: net.CIDRMask(bits, ip.BitLen())}
		must.NoError(t, netlink.AddrAdd(link, &netlink.Addr{IPNet: ipNet, Flags: unix.IFA_F_NODAD}))
		l, err := net.Listen("tcp", netip.AddrPortFrom(ip, 80).String())
		must.NoError(t, err)
		t.Cleanup(func() { l.Close() })
		for { // the kernel drops packets to a new IPv6 address
			c, err := net.DialTimeout("tcp", l.Addr().String(), 100*time.Millisecond)
			if err == nil {
				c.Close()
				break
			}
		}
	}
}
