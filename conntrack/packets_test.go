package conntrack

import (
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// addNode adds the addresses and routes of a node to the namespace of the
// thread: the local addresses 192.0.2.1 to 192.0.2.3, of which 192.0.2.2 only
// has a local route, fd01::1 and fd01::3; of a client and of endpoints; and
// routes to networks that are not local.
func addNode(t testing.TB, c *Conn) {
	t.Helper()
	lo := setUp(t, "lo")
	veth := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "veth-left"}, PeerName: "veth-right"}
	if err := netlink.LinkAdd(veth); err != nil {
		t.Fatal(err)
	}
	setUp(t, "veth-right")
	left := setUp(t, "veth-left")
	for a := range strings.FieldsSeq("192.0.2.1 192.0.2.3 10.1.1.2 10.1.2.2 10.1.2.3 10.1.2.4 fd01::1 fd01::3 " +
		"fd01:1::2 fd01:2::2 fd01:2::3 fd01:2::4") {
		added := &netlink.Addr{IPNet: netlink.NewIPNet(net.ParseIP(a))}
		if addr(a).Is6() {
			added.Flags = unix.IFA_F_NODAD
		}
		if err := netlink.AddrAdd(&netlink.Dummy{LinkAttrs: netlink.LinkAttrs{Index: lo}}, added); err != nil {
			t.Fatalf("add address %s: %v", a, err)
		}
		for isLocal := false; !isLocal; { // the kernel adds the route to an IPv6 address asynchronously
			var err error
			if isLocal, err = c.lookUpLocal(addr(a)); err != nil {
				t.Fatal(err)
			}
		}
	}
	routes := []netlink.Route{{
		LinkIndex: lo, Dst: ipNet("192.0.2.2/32"),
		Type: unix.RTN_LOCAL, Table: unix.RT_TABLE_LOCAL, Scope: unix.RT_SCOPE_HOST,
	}}
	for dst := range strings.FieldsSeq("198.51.100.0/24 10.96.0.0/16 10.1.96.0/24 fd01:96::/64") {
		routes = append(routes, netlink.Route{LinkIndex: left, Dst: ipNet(dst)})
	}
	for _, route := range routes {
		if err := netlink.RouteAdd(&route); err != nil {
			t.Fatalf("add %v: %v", route, err)
		}
	}
}

// setUp sets an interface up, and returns its index.
func setUp(t testing.TB, name string) int {
	t.Helper()
	link, err := netlink.LinkByName(name)
	if err == nil {
		err = netlink.LinkSetUp(link)
	}
	if err != nil {
		t.Fatalf("set %s up: %v", name, err)
	}
	return link.Attrs().Index
}

func ipNet(s string) *net.IPNet {
	prefix := netip.MustParsePrefix(s)
	return &net.IPNet{IP: prefix.Addr().AsSlice(), Mask: net.CIDRMask(prefix.Bits(), prefix.Addr().BitLen())}
}

// packets are the UDP packets of a script. All sockets are in the namespace of
// the script, so the kernel delivers a packet before the step ends.
type packets struct {
	t       testing.TB
	zone    string // of all packets
	sockets map[netip.AddrPort]int
}

func (p *packets) socket(at netip.AddrPort) int {
	if fd, ok := p.sockets[at]; ok {
		return fd
	}
	fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err == nil {
		err = unix.Bind(fd, sockaddr(at))
	}
	if err != nil {
		p.t.Fatalf("listen on %v: %v", at, err)
	}
	p.t.Cleanup(func() { unix.Close(fd) })
	if p.sockets == nil {
		p.sockets = make(map[netip.AddrPort]int)
	}
	p.sockets[at] = fd
	return fd
}

func sockaddr(at netip.AddrPort) *unix.SockaddrInet6 {
	return &unix.SockaddrInet6{Addr: at.Addr().As16(), Port: int(at.Port())}
}

// dnat replaces the rules for new flows: FRONTEND ENDPOINT FRONTEND ENDPOINT...
// A frontend without an address stands for all local addresses.
func (p *packets) dnat(args ...string) (string, error) {
	rules := "table inet lab\ndelete table inet lab\ntable inet lab {\n" +
		"chain raw { type filter hook output priority raw; ct zone set " + p.zone + "; }\n" +
		"chain nat { type nat hook output priority -100;\n"
	for ; len(args) > 1; args = args[2:] {
		endpoint := addrPort(args[1])
		p.socket(endpoint)
		family, match := "ip", "fib daddr type local"
		if endpoint.Addr().Is6() {
			family = "ip6"
		}
		port, isLocal := strings.CutPrefix(args[0], ":")
		if !isLocal {
			frontend := addrPort(args[0])
			match, port = family+" daddr "+frontend.Addr().String(), fmt.Sprint(frontend.Port())
		}
		rules += fmt.Sprintf("%s udp dport %s dnat %s to %v\n", match, port, family, endpoint)
	}
	nft := exec.Command("nft", "-f", "-")
	nft.Stdin = strings.NewReader(rules + "}\n}\n")
	out, err := nft.CombinedOutput()
	return string(out), err
}

// send sends a packet: CLIENT FRONTEND.
func (p *packets) send(client, frontend netip.AddrPort) error {
	return unix.Sendto(p.socket(client), []byte("who"), 0, sockaddr(frontend))
}

// ask sends a packet and returns the address of the endpoint that answers:
// CLIENT FRONTEND.
func (p *packets) ask(client, frontend netip.AddrPort) (string, error) {
	if err := p.send(client, frontend); err != nil {
		return "", err
	}
	server, from, err := p.receive()
	if err != nil {
		return "", err
	}
	if err := unix.Sendto(p.sockets[server], []byte("me"), 0, from); err != nil {
		return "", err
	}
	at, from, err := p.receive()
	if want := sockaddr(frontend); err == nil && (at != client || *from.(*unix.SockaddrInet6) != *want) {
		err = fmt.Errorf("%v got an answer from %v, want one from %v", at, from, want)
	}
	return server.String(), err
}

// receive waits for a packet on any socket.
func (p *packets) receive() (at netip.AddrPort, from unix.Sockaddr, err error) {
	var fds []unix.PollFd
	var addrs []netip.AddrPort
	for at, fd := range p.sockets {
		fds, addrs = append(fds, unix.PollFd{Fd: int32(fd), Events: unix.POLLIN}), append(addrs, at)
	}
	if n, err := unix.Poll(fds, 10_000); n == 0 || err != nil {
		return at, nil, fmt.Errorf("no packet arrives: %v", err)
	}
	for i, fd := range fds {
		if fd.Revents != 0 {
			_, from, err = unix.Recvfrom(int(fd.Fd), make([]byte, 64), 0)
			return addrs[i], from, err
		}
	}
	return at, nil, fmt.Errorf("got %+v, want a packet", fds)
}
