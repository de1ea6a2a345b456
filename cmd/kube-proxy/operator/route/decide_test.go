package route_test

import (
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/cmd/kube-proxy/operator/route"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
)

var (
	client   = netip.MustParseAddr("198.51.100.7")
	endpoint = netip.MustParseAddr("10.244.3.5")
)

// healthy returns the facts of a packet that arrives on eth1 and leaves by
// eth0, as its answer does the other way.
func healthy() route.Facts {
	return route.Facts{
		Packet: route.Packet{Source: client, Destination: endpoint, In: "eth1"},
		There: route.Leg{
			Source: client, Destination: endpoint, In: "eth1", Out: "eth0", Filter: route.Strict,
			FilterSetting: "net.ipv4.conf.all.rp_filter", ToSource: "eth1",
		},
		Back: route.Leg{Source: endpoint, Destination: client, In: "eth0", Out: "eth1", ToSource: "eth0"},
	}
}

// unreachable makes a leg fail as all packets to its destination do.
func unreachable(l *route.Leg, err unix.Errno) { l.Refused, l.Unreachable = err, err }

// Each case changes healthy facts. The first cause on the way counts.
func TestDecide(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(f *route.Facts)
		code   ruleset.Code
		text   string
	}{
		"healthy": {func(*route.Facts) {}, "", ""},
		"to this node": {func(f *route.Facts) {
			f.There.Local, f.There.NotForwarding, f.NoCarrier, f.Neighbour = true, "x", true, route.NeighbourFailed
		}, "", ""},
		"of this node": {func(f *route.Facts) { f.There.OfNode, f.There.NotForwarding, f.There.In = true, "x", "" },
			"", ""},
		"no route": {func(f *route.Facts) { unreachable(&f.There, unix.ENETUNREACH) }, ruleset.NoRoute,
			"this node has no route to 10.244.3.5"},
		"no route of this node": {func(f *route.Facts) {
			f.There.OfNode, f.There.In, f.There.Unreachable = true, "", unix.ENETUNREACH
		}, ruleset.NoRoute, "this node has no route to 10.244.3.5"},
		"a route for packets of the interface only": {func(f *route.Facts) { f.There.Unreachable = unix.ENETUNREACH },
			"", ""},
		"blackhole": {func(f *route.Facts) { unreachable(&f.There, unix.EINVAL) }, ruleset.RouteForbids,
			"the route to 10.244.3.5 is of type blackhole"},
		"forwarding is off": {func(f *route.Facts) {
			f.There.Refused, f.There.NotForwarding = unix.EHOSTUNREACH, "net.ipv4.ip_forward"
		}, ruleset.ForwardingOff,
			"net.ipv4.ip_forward is 0: this node does not forward packets to 10.244.3.5"},
		"forwarding of IPv6 is off": {func(f *route.Facts) { f.There.NotForwarding = "net.ipv6.conf.all.forwarding" },
			ruleset.ForwardingOff,
			"net.ipv6.conf.all.forwarding is 0: this node does not forward packets to 10.244.3.5"},
		"strict rp_filter": {func(f *route.Facts) { f.There.Refused, f.There.ToSource = unix.EINVAL, "eth0" },
			ruleset.ReversePath, "eth1 has a strict rp_filter (net.ipv4.conf.all.rp_filter is 1) and drops packets " +
				"from 198.51.100.7, because the route to this source leads through eth0"},
		"loose rp_filter": {func(f *route.Facts) {
			f.There.Refused, f.There.Filter, f.There.ToSource = unix.EXDEV, 2, ""
		}, ruleset.ReversePath,
			"eth1, with rp_filter 2, drops packets from 198.51.100.7, because this node has no route to this source"},
		"martian": {func(f *route.Facts) { f.There.Refused, f.There.SourceIsLocal = unix.EINVAL, true },
			ruleset.MartianSource,
			"packets are not accepted on eth1: their source 198.51.100.7 is an address of this node"},
		"another refusal": {func(f *route.Facts) { f.There.Refused = unix.EINVAL }, ruleset.RouteRefused,
			"the kernel does not route packets from 198.51.100.7 to 10.244.3.5 that arrive on eth1: invalid argument"},
		"carrier": {func(f *route.Facts) { f.NoCarrier, f.Neighbour = true, route.NeighbourFailed }, ruleset.NoCarrier,
			"interface eth0, which leads to 10.244.3.5, has no carrier"},
		"neighbour": {func(f *route.Facts) { f.Neighbour = route.NeighbourFailed }, ruleset.SilentNeighbour,
			"10.244.3.5 on eth0 does not answer ARP"},
		"next hop": {func(f *route.Facts) {
			f.Neighbour, f.There.Via = route.NeighbourResolving, netip.MustParseAddr("172.30.0.12")
		}, ruleset.SilentNeighbour, "the next hop 172.30.0.12 to 10.244.3.5 on eth0 does not answer ARP"},
		"no way back": {func(f *route.Facts) { unreachable(&f.Back, unix.ENETUNREACH) }, ruleset.NoRoute,
			"the answer does not reach the client: this node has no route to 198.51.100.7"},
		"the answer is filtered": {func(f *route.Facts) {
			f.Back.Refused, f.Back.Filter, f.Back.ToSource = unix.EINVAL, route.Strict, "eth2"
			f.Back.FilterSetting = "net.ipv4.conf.eth0.rp_filter"
		}, ruleset.ReversePath, "the answer does not reach the client: eth0 has a strict rp_filter " +
			"(net.ipv4.conf.eth0.rp_filter is 1) and drops answers from 10.244.3.5, because the route to this source " +
			"leads through eth2"},
	} {
		f := healthy()
		tt.change(&f)
		c := route.Decide(&f)
		if c.Code != tt.code || c.Text != tt.text {
			t.Errorf("%s: got %s: %s\nwant %s: %s", name, c.Code, c.Text, tt.code, tt.text)
		}
		if (c.Code == "") != (c.Remedy == "") {
			t.Errorf("%s: got remedy %q", name, c.Remedy)
		}
	}
}
