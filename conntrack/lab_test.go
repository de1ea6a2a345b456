package conntrack

import (
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// lab has a client, a router that translates addresses, and servers, each in
// its own network namespace:
//
//	client .1.2 ---- .1.1 router .2.1 ---- .2.2, .2.3, .2.4 servers
type lab struct {
	family                  Family
	client, router, servers namespace
	conn                    *Conn // of the router

	routerAddr, vip netip.Addr
	endpoints       [3]netip.AddrPort // each replies with its own address
	zoneID          uint16            // of all packets
}

func newLab(t *testing.T, family Family, zoneID uint16) *lab {
	t.Helper()
	l := &lab{
		family: family, zoneID: zoneID, client: newNamespace(t), router: newNamespace(t), servers: newNamespace(t),
	}
	l.routerAddr, l.vip = l.addr(1, 1), l.addr(96, 10)
	for _, ns := range []namespace{l.client, l.router, l.servers} {
		// Otherwise IPv6 waits for seconds for duplicate address detection.
		ns.setSysctl(t, "net/ipv6/conf/all/accept_dad", "0")
		ns.setSysctl(t, "net/ipv6/conf/default/accept_dad", "0")
	}
	connect(t, l.client, l.router)
	connect(t, l.router, l.servers)
	addAddrs(t, l.client, "veth-right", l.addr(1, 2))
	addAddrs(t, l.router, "veth-left", l.addr(1, 1))
	addAddrs(t, l.router, "veth-right", l.addr(2, 1))
	addAddrs(t, l.servers, "veth-left", l.addr(2, 2), l.addr(2, 3), l.addr(2, 4))
	addDefaultRoute(t, l.client, l.addr(1, 1))
	addDefaultRoute(t, l.servers, l.addr(2, 1))
	addDefaultRoute(t, l.router, l.addr(2, 2)) // untranslated packets are sent to the servers
	forwarding := map[Family]string{IPv4: "net/ipv4/ip_forward", IPv6: "net/ipv6/conf/all/forwarding"}
	l.router.setSysctl(t, forwarding[family], "1")
	for i := range l.endpoints {
		l.endpoints[i] = netip.AddrPortFrom(l.addr(2, byte(2+i)), 5353)
		l.serve(t, l.endpoints[i])
		l.serve(t, netip.AddrPortFrom(l.endpoints[i].Addr(), 30053))
	}
	l.translate(t)
	l.conn = l.router.open(t)
	return l
}

// addr returns 10.1.NET.HOST or fd01:NET::HOST. Network 96 is for VIPs.
func (l *lab) addr(network, host byte) netip.Addr {
	if l.family == IPv4 {
		return netip.AddrFrom4([4]byte{10, 1, network, host})
	}
	return netip.AddrFrom16([16]byte{0: 0xfd, 1: 0x01, 3: network, 15: host})
}

// connect connects two namespaces by the interfaces veth-right of left and
// veth-left of right.
func connect(t *testing.T, left, right namespace) {
	t.Helper()
	left.Do(func() {
		attrs := netlink.NewLinkAttrs()
		attrs.Name = "veth-right"
		veth := &netlink.Veth{LinkAttrs: attrs, PeerName: "veth-left", PeerNamespace: netlink.NsFd(right.Fd())}
		if err := netlink.LinkAdd(veth); err != nil {
			t.Fatalf("add veth: %v", err)
		}
	})
	for ns, name := range map[namespace]string{left: "veth-right", right: "veth-left"} {
		ns.Do(func() {
			link, err := netlink.LinkByName(name)
			if err == nil {
				err = netlink.LinkSetUp(link)
			}
			if err != nil {
				t.Fatalf("set %s up: %v", name, err)
			}
		})
	}
}

func addAddrs(t *testing.T, ns namespace, link string, addrs ...netip.Addr) {
	t.Helper()
	for _, a := range addrs {
		bits := 24
		if a.Is6() {
			bits = 64
		}
		ns.AddAddr(t, link, a, bits)
	}
}

func addDefaultRoute(t *testing.T, ns namespace, gateway netip.Addr) {
	t.Helper()
	ns.Do(func() {
		all := &net.IPNet{IP: make([]byte, gateway.BitLen()/8), Mask: net.CIDRMask(0, gateway.BitLen())}
		if err := netlink.RouteAdd(&netlink.Route{Dst: all, Gw: gateway.AsSlice()}); err != nil {
			t.Fatalf("add default route via %v: %v", gateway, err)
		}
	})
}

// serve replies to each datagram to an address with that address, until the
// test ends.
func (l *lab) serve(t *testing.T, at netip.AddrPort) {
	t.Helper()
	conn := listen(t, l.servers, at)
	go func() {
		buf := make([]byte, 64)
		for {
			_, from, err := conn.ReadFromUDPAddrPort(buf)
			if err != nil {
				return
			}
			conn.WriteToUDPAddrPort([]byte(at.String()), from)
		}
	}()
}

func listen(t *testing.T, ns namespace, at netip.AddrPort) (conn *net.UDPConn) {
	t.Helper()
	ns.Do(func() {
		var err error
		if conn, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(at)); err != nil {
			t.Fatal(err)
		}
	})
	t.Cleanup(func() { conn.Close() })
	return conn
}

// udpClient always sends from the same port.
type udpClient struct {
	t    *testing.T
	conn *net.UDPConn
	addr netip.AddrPort
}

func (l *lab) newClient(t *testing.T, port uint16) udpClient {
	t.Helper()
	at := netip.AddrPortFrom(l.addr(1, 2), port)
	return udpClient{t, listen(t, l.client, at), at}
}

func (c udpClient) send(to netip.AddrPort) {
	c.t.Helper()
	if _, err := c.conn.WriteToUDPAddrPort([]byte("who"), to); err != nil {
		c.t.Fatal(err)
	}
}

// ask sends to an address and returns the endpoint that replies.
func (c udpClient) ask(to netip.AddrPort) netip.AddrPort {
	c.t.Helper()
	c.send(to)
	buf := make([]byte, 64)
	c.conn.SetReadDeadline(time.Now().Add(10 * time.Second))
	n, from, err := c.conn.ReadFromUDPAddrPort(buf)
	if err != nil {
		c.t.Fatalf("ask %v: %v", to, err)
	}
	if from != to {
		c.t.Errorf("got a reply from %v, want %v", from, to)
	}
	return netip.MustParseAddrPort(string(buf[:n]))
}

// rule translates UDP packets to dst, or to any local address if dst has
// none.
type rule struct {
	dst, endpoint netip.AddrPort
}

// translate replaces the router's rules for new flows.
func (l *lab) translate(t *testing.T, rules ...rule) {
	t.Helper()
	c, err := nftables.New(nftables.WithNetNSFd(l.router.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	table := c.AddTable(&nftables.Table{Family: nftables.TableFamily(l.family), Name: "lab"})
	c.DelTable(table)
	table = c.AddTable(table)
	raw := c.AddChain(&nftables.Chain{
		Table: table, Name: "raw", Type: nftables.ChainTypeFilter,
		Hooknum: nftables.ChainHookPrerouting, Priority: nftables.ChainPriorityRaw,
	})
	c.AddRule(&nftables.Rule{Table: table, Chain: raw, Exprs: l.zoneRule()})
	nat := c.AddChain(&nftables.Chain{
		Table: table, Name: "nat", Type: nftables.ChainTypeNAT,
		Hooknum: nftables.ChainHookPrerouting, Priority: nftables.ChainPriorityNATDest,
	})
	for _, r := range rules {
		c.AddRule(&nftables.Rule{Table: table, Chain: nat, Exprs: l.dnatRule(r)})
	}
	if err := c.Flush(); err != nil {
		t.Fatalf("write rules: %v", err)
	}
}

// zoneRule is `ct zone set ZONE`. Like any rule with ct, it enables
// connection tracking.
func (l *lab) zoneRule() []expr.Any {
	return []expr.Any{
		&expr.Immediate{Register: 1, Data: binaryutil.NativeEndian.PutUint16(l.zoneID)},
		&expr.Ct{Key: expr.CtKeyZONE, SourceRegister: true, Register: 1},
	}
}

// dnatRule is `ip daddr DST udp dport PORT dnat to ENDPOINT`, or the same
// with `fib daddr type local`.
func (l *lab) dnatRule(r rule) []expr.Any {
	offset, length := uint32(16), uint32(4)
	if l.family == IPv6 {
		offset, length = 24, 16
	}
	match := []expr.Any{
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: length},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: r.dst.Addr().AsSlice()},
	}
	if !r.dst.Addr().IsValid() {
		match = []expr.Any{
			&expr.Fib{Register: 1, FlagDADDR: true, ResultADDRTYPE: true},
			&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: binaryutil.NativeEndian.PutUint32(unix.RTN_LOCAL)},
		}
	}
	return append(match,
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{unix.IPPROTO_UDP}},
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: binaryutil.BigEndian.PutUint16(r.dst.Port())},
		&expr.Immediate{Register: 1, Data: r.endpoint.Addr().AsSlice()},
		&expr.Immediate{Register: 2, Data: binaryutil.BigEndian.PutUint16(r.endpoint.Port())},
		&expr.NAT{Type: expr.NATTypeDestNAT, Family: uint32(l.family), RegAddrMin: 1, RegProtoMin: 2, Specified: true},
	)
}
