package probe

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/nft"
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
			Port: eject.Port{Family: nft.IPv4},
			Addr: netip.MustParseAddrPort(addr),
		}}
		results := make(chan Outcome, 1)
		Send(probe, results)
		if got := <-results; got != (Outcome{probe, want}) {
			t.Errorf("%s: got %v, want %s", addr, got, want)
		}
	}
}

// A neighbor that does not answer is unresolved after a probe: the endpoint
// itself, or the router to it.
func TestIsUnresolved(t *testing.T) {
	nstest.Enter(t)
	addNetwork(t)
	link, err := netlink.LinkByName("net")
	must.NoError(t, err)
	must.NoError(t, netlink.RouteAdd(&netlink.Route{
		Dst: &net.IPNet{IP: net.IPv4(203, 0, 113, 0), Mask: net.CIDRMask(24, 32)}, Gw: net.IPv4(192, 0, 2, 8),
		LinkIndex: link.Attrs().Index,
	}))
	for addr, want := range map[string]bool{
		"192.0.2.1": false, "fd01::1": false, "192.0.2.9": true, "fd01::9": true, "203.0.113.1": true,
		"198.51.100.1": false, "fd02::1": false, // no route
	} {
		at := netip.MustParseAddr(addr)
		if IsUnresolved(at) {
			t.Errorf("%s: unresolved before the probe", addr)
		}
		replies := make(chan Reply, 1)
		Ask(netip.AddrPortFrom(at, 80), eject.ProbeTimeout, func(r Reply) { replies <- r })
		<-replies
		if got := IsUnresolved(at); got != want {
			t.Errorf("%s: got %v", addr, got)
		}
	}
}

func TestAllowed(t *testing.T) {
	for addr, want := range map[string]bool{
		"10.0.0.1": true, "fd00::1": true, "168.63.129.15": true,
		"168.63.129.16": false, "100.100.100.200": false, "192.0.0.192": false, "169.254.169.254": false,
		"fd00:ec2::254": false, "fd20:ce::254": false, "127.0.0.1": false, "ff02::1": false,
	} {
		if got := Allowed(netip.MustParseAddr(addr)); got != want {
			t.Errorf("%s: got %v", addr, got)
		}
	}
}

// A SYN-ACK, a RST and other ends of a probe are distinguished.
func TestAsk(t *testing.T) {
	nstest.Enter(t)
	addNetwork(t)
	must.NoError(t, netlink.RouteAdd(&netlink.Route{
		Dst: &net.IPNet{IP: net.IPv4(203, 0, 113, 0), Mask: net.CIDRMask(24, 32)}, Type: unix.RTN_UNREACHABLE,
	}))
	for addr, want := range map[string]Reply{
		"192.0.2.1:80": Accepted, "[fd01::1]:80": Accepted,
		"192.0.2.1:81": Refused, "[fd01::1]:81": Refused,
		"192.0.2.9:80": Silence, "[fd01::9]:80": Silence, // the neighbor is given up later
		"203.0.113.1:80": NoRoute, "[fd02::1]:80": NoRoute, "127.0.0.1:80": NotSent,
	} {
		replies := make(chan Reply, 1)
		Ask(netip.MustParseAddrPort(addr), eject.ProbeTimeout, func(r Reply) { replies <- r })
		if got := <-replies; got != want {
			t.Errorf("%s: got %s, want %s", addr, got, want)
		}
	}
}

// A probe for which the process has no descriptor is not sent.
func TestDescriptors(t *testing.T) {
	nstest.Enter(t)
	addNetwork(t)
	var limit unix.Rlimit
	must.NoError(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &limit))
	must.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Max: limit.Max}))
	defer unix.Setrlimit(unix.RLIMIT_NOFILE, &limit)
	Ask(netip.MustParseAddrPort("192.0.2.1:80"), eject.ProbeTimeout, func(r Reply) {
		if r != NotSent {
			t.Errorf("got %s", r)
		}
	})
}

// A server accepts no connection of a probe, with a queue of half-open
// connections and with SYN cookies. It accepts connections in their order, so
// all probes precede the client.
func TestAccept(t *testing.T) {
	for name, cookies := range map[string]string{"queue": "1", "SYN cookies": "2"} {
		t.Run(name, func(t *testing.T) {
			nstest.Enter(t)
			addNetwork(t)
			must.NoError(t, os.WriteFile("/proc/sys/net/ipv4/tcp_syncookies", []byte(cookies), 0))
			for _, addr := range []string{"192.0.2.1:82", "[fd01::1]:82"} {
				l, err := net.Listen("tcp", addr)
				must.NoError(t, err)
				const probes = 200
				accepted := make(chan net.Addr, probes+1)
				go accept(l, accepted)
				late := 0
				for range probes {
					if want(t, addr, eject.Answered) > delayedACK {
						late++ // this node was too slow: the kernel completed the handshake
					}
				}
				client, err := net.Dial("tcp", addr)
				must.NoError(t, err)
				n := 0
				for from := <-accepted; from.String() != client.LocalAddr().String(); from = <-accepted {
					n++
				}
				if n > late {
					t.Errorf("%s: the server accepted %d of %d probes, %d of them late", addr, n, probes, late)
				}
				must.NoError(t, errors.Join(client.Close(), l.Close()))
			}
		})
	}
}

// delayedACK is how long the kernel delays the last ACK of a handshake, with a
// margin.
const delayedACK = 150 * time.Millisecond

// accept passes on the clients of the connections that it accepts, and closes
// these.
func accept(l net.Listener, accepted chan<- net.Addr) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		c.Close()
		accepted <- c.RemoteAddr()
	}
}

// Probes do not fill the queue of a server that accepts nothing. A queue that
// clients have filled does not answer.
func TestFullQueue(t *testing.T) {
	nstest.Enter(t)
	addNetwork(t)
	for _, to := range []string{"192.0.2.1:83", "[fd01::1]:83"} {
		const backlog = 2
		listen(t, to, backlog)
		for range 2 * backlog {
			want(t, to, eject.Answered)
		}
		for range backlog + 1 {
			c, err := net.DialTimeout("tcp", to, 5*time.Second)
			must.NoError(t, err)
			must.Close(t, c)
		}
		want(t, to, eject.Lost)
	}
}

// listen listens at an address. Nothing accepts the connections.
func listen(t *testing.T, at string, backlog int) {
	family, addr := address(netip.MustParseAddrPort(at))
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	must.NoError(t, err)
	t.Cleanup(func() { unix.Close(fd) })
	must.NoError(t, errors.Join(unix.Bind(fd, addr), unix.Listen(fd, backlog)))
}

// want sends a probe, compares its result, and returns how long it took.
func want(t *testing.T, to string, result eject.Result) time.Duration {
	t.Helper()
	results := make(chan Outcome, 1)
	start := time.Now()
	Send(eject.Probe{Endpoint: eject.Endpoint{Addr: netip.MustParseAddrPort(to)}}, results)
	if got := <-results; got.Result != result {
		t.Errorf("%s: got %s, want %s", to, got.Result, result)
	}
	return time.Since(start)
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
