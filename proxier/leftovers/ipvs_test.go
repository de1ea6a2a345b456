package leftovers

import (
	"net/netip"
	"testing"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

func TestLeftoverServers(t *testing.T) {
	t.Parallel()
	enter(t)
	run(t, "", "ip", "link", "add", "kube-ipvs0", "type", "bridge")
	run(t, "", "ip", "addr", "add", "10.96.0.1/32", "dev", "kube-ipvs0")
	run(t, "", "ip", "addr", "add", "fd00:96::1/128", "dev", "kube-ipvs0")
	run(t, `create KUBE-NODE-PORT-TCP bitmap:port range 0-65535
add KUBE-NODE-PORT-TCP 30080
create KUBE-6-NODE-PORT-UDP bitmap:port range 0-65535
add KUBE-6-NODE-PORT-UDP 30053
create KUBE-NODE-PORT-SCTP-HASH hash:ip,port
add KUBE-NODE-PORT-SCTP-HASH 172.30.0.11,132:30099
create KUBE-HEALTH-CHECK-NODE-PORT bitmap:port range 0-65535
add KUBE-HEALTH-CHECK-NODE-PORT 31000
`, "ipset", "restore")
	link, err := netlink.LinkByName(ipvsInterface)
	if err != nil {
		t.Fatal(err)
	}
	leftovers, err := findLeftoverServers(link)
	if err != nil {
		t.Fatal(err)
	}
	const tcp, udp, sctp = unix.IPPROTO_TCP, unix.IPPROTO_UDP, unix.IPPROTO_SCTP
	for _, c := range []struct {
		addr     string
		protocol uint16
		port     uint16
		want     bool
	}{
		{"10.96.0.1", tcp, 443, true},
		{"fd00:96::1", udp, 53, true},
		{"172.30.0.11", tcp, 30080, true},
		{"fd00:30::11", udp, 30053, true},
		{"172.30.0.11", sctp, 30099, true},
		{"172.30.0.11", udp, 30080, false},
		{"172.30.0.11", tcp, 31000, false},
		{"192.0.2.1", tcp, 443, false},
	} {
		s := virtualServer{addr: netip.MustParseAddr(c.addr), protocol: c.protocol, port: c.port}
		if got := leftovers.contains(s); got != c.want {
			t.Errorf("%s: got leftover %v, want %v", s, got, c.want)
		}
	}
	if leftovers.contains(virtualServer{mark: 1, addr: netip.MustParseAddr("10.96.0.1")}) {
		t.Error("got a virtual server with a mark as a leftover")
	}
}

func TestServerRoundTrip(t *testing.T) {
	for _, s := range []virtualServer{
		{protocol: unix.IPPROTO_TCP, addr: netip.MustParseAddr("10.96.0.1"), port: 443},
		{protocol: unix.IPPROTO_UDP, addr: netip.MustParseAddr("fd00:96::1"), port: 53},
	} {
		header := nl.Genlmsg{Command: ipvsGetService, Version: ipvsVersion}
		msg := append(header.Serialize(), encodeServer(s).Serialize()...)
		if got := decodeServer(msg); got != s {
			t.Errorf("got %+v, want %s", got, s)
		}
	}
}
