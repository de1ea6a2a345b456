package conntrack

import (
	"net/netip"
	"slices"
	"testing"
)

func TestStale(t *testing.T) {
	isLocal := local("192.0.2.1", "198.51.100.1", "fd01::1", "127.0.0.1", "::1")
	const client, vip, ep1, ep2 = "10.0.0.1:4000", "10.96.0.10:53", "10.244.0.5:53", "10.244.0.6:53"
	const nodePort, onNode, onHost = "0.0.0.0:30053", "192.0.2.1:30053", "192.0.2.2:30053"
	for name, tc := range map[string]struct {
		change FrontendChange
		flow   trackedFlow
		want   bool
	}{
		"endpoint serves":               {change(vip, ep1, ep2), newFlow(udp, client, vip, ep1), false},
		"endpoint is gone":              {change(vip, ep2), newFlow(udp, client, vip, ep1), true},
		"same address, other port":      {change(vip, "10.244.0.5:54"), newFlow(udp, client, vip, ep1), true},
		"last endpoint is gone":         {change(vip), newFlow(udp, client, vip, ep1), true},
		"first endpoint":                {change(vip, ep1), newFlow(udp, client, vip, vip), true},
		"never translated, no endpoint": {change(vip), newFlow(udp, client, vip, vip), true},
		"VIP is its own endpoint":       {change(vip, vip), newFlow(udp, client, vip, vip), false},
		"TCP":                           {change(vip, ep2), newFlow(tcp, client, vip, ep1), false},
		"another port":                  {change(vip, ep2), newFlow(udp, client, "10.96.0.10:54", ep1), false},
		"another VIP":                   {change(vip, ep2), newFlow(udp, client, "10.96.0.11:53", ep1), false},
		"from the VIP":                  {change(vip, ep2), newFlow(udp, vip, client, client), false},
		"to the endpoint itself":        {change(vip, ep2), newFlow(udp, client, ep1, ep1), false},
		"in another zone":               {change(vip, ep2), newFlow(udp, client, vip, ep1).inZone(7, zoneBoth), true},
		"mapped addresses": {
			change("[::ffff:10.96.0.10]:53", "[::ffff:10.244.0.5]:53"), newFlow(udp, client, vip, ep1), false,
		},
		"mapped addresses, gone": {
			change("[::ffff:10.96.0.10]:53", "[::ffff:10.244.0.6]:53"), newFlow(udp, client, vip, ep1), true,
		},

		"frontend is gone":                   {gone(vip), newFlow(udp, client, vip, ep1), true},
		"frontend is gone, never translated": {gone(vip), newFlow(udp, client, vip, vip), false},
		"frontend is gone, TCP":              {gone(vip), newFlow(tcp, client, vip, ep1), false},

		"IPv6 endpoint serves": {
			change("[fd96::10]:53", "[fd24::5]:53"),
			newFlow(udp, "[fd00::1]:1", "[fd96::10]:53", "[fd24::5]:53"), false,
		},
		"IPv6 endpoint is gone": {
			change("[fd96::10]:53", "[fd24::6]:53"),
			newFlow(udp, "[fd00::1]:1", "[fd96::10]:53", "[fd24::5]:53"), true,
		},

		"NodePort, endpoint serves":   {change(nodePort, ep1), newFlow(udp, client, onNode, ep1), false},
		"NodePort, endpoint is gone":  {change(nodePort, ep2), newFlow(udp, client, onNode, ep1), true},
		"NodePort, first endpoint":    {change(nodePort, ep1), newFlow(udp, client, onNode, onNode), true},
		"NodePort, TCP":               {change(nodePort, ep2), newFlow(tcp, client, onNode, ep1), false},
		"NodePort, another port":      {change(nodePort, ep2), newFlow(udp, client, "192.0.2.1:30054", ep1), false},
		"NodePort of another host":    {change(nodePort, ep1), newFlow(udp, client, onHost, onHost), false},
		"NodePort, a VIP's port":      {change(nodePort, ep2), newFlow(udp, client, "10.96.0.11:30053", ep1), false},
		"NodePort, a VIP on the node": {change(nodePort, ep2), newFlow(udp, client, "198.51.100.1:30053", ep1), false},
		"NodePort, loopback":          {change(nodePort, ep2), newFlow(udp, client, "127.0.0.1:30053", ep1), false},
		"NodePort, IPv6 loopback": {
			change("[::]:30053"), newFlow(udp, "[::1]:1", "[::1]:30053", "[::1]:30053"), false,
		},
		"NodePort, IPv6": {
			change("[::]:30053"), newFlow(udp, "[fd00::1]:1", "[fd01::1]:30053", "[fd24::5]:53"), true,
		},
		"NodePort of the other family":   {change("[::]:30053"), newFlow(udp, client, onNode, ep1), false},
		"NodePort is gone":               {gone(nodePort), newFlow(udp, client, onNode, ep1), true},
		"NodePort is gone, untranslated": {gone(nodePort), newFlow(udp, client, onNode, onNode), false},
		"frontend without port":          {change("10.96.0.10:0"), newFlow(udp, client, "10.96.0.10:0", ep1), false},
		"frontend without address":       {FrontendChange{}, newFlow(udp, client, "0.0.0.0:0", ep1), false},
		"unspecified address, port 0":    {change("0.0.0.0:0"), newFlow(udp, client, "192.0.2.1:0", ep1), false},
		"endpoint is the client":         {change(vip, client), newFlow(udp, client, vip, client), false},
	} {
		t.Run(name, func(t *testing.T) {
			f := onAllAddrs()
			f.Update(change("198.51.100.1:30053", ep1), tc.change) // a VIP of another service on the node
			todo := f.take()
			if got := f.stale(tc.flow, &todo, isLocal); got != tc.want {
				t.Errorf("%v: got stale %v, want %v", tc.flow, got, tc.want)
			}
		})
	}
}

// Lost attempts to connect to frontends whose rules were missing are stale,
// other TCP flows are not.
func TestStaleMissed(t *testing.T) {
	const client, vip, ep = "10.0.0.1:4000", "10.96.0.10:80", "10.244.0.5:80"
	const client6, vip6 = "[fd00::1]:4000", "[fd96::10]:80"
	f := newFrontends()
	f.Miss(IPv4, []netip.AddrPort{addrPort("10.96.0.12:80"), addrPort(vip)})
	f.Miss(IPv6, []netip.AddrPort{addrPort(vip6)})
	taken := f.take()
	var todo check
	todo.merge(taken)
	for _, tc := range []struct {
		flow  trackedFlow
		state uint8
		want  bool
	}{
		{newFlow(tcp, client, vip, vip), tcpSynSent, true},
		{newFlow(tcp, client6, vip6, vip6), tcpSynSent, true},
		{newFlow(tcp, client, vip, vip), tcpSynRecv, false},
		{newFlow(tcp, client, vip, ep), tcpSynSent, false},
		{newFlow(tcp, client, "10.96.0.11:80", "10.96.0.11:80"), tcpSynSent, false},
		{newFlow(udp, client, vip, vip), 0, false},
	} {
		tc.flow.state = tc.state
		if got := f.stale(tc.flow, &todo, local()); got != tc.want {
			t.Errorf("%v in state %d: got stale %v, want %v", tc.flow, tc.state, got, tc.want)
		}
	}
	want := []Selection{{Family: IPv4, Protocol: tcp, lost: true}, {Family: IPv6, Protocol: tcp, lost: true}}
	if got := plan(&todo, 100); !slices.Equal(got, want) {
		t.Errorf("got %v\nwant %v", got, want)
	}
}

// staleAfter reports whether a flow is stale after steps.
func staleAfter(flow trackedFlow, isLocal func(netip.Addr) bool, steps ...func(f *frontends)) bool {
	f := newFrontends()
	for _, step := range steps {
		step(f)
	}
	todo := f.take()
	return f.stale(flow, &todo, isLocal)
}

// A VIP on a node address takes precedence over a NodePort with its port,
// whichever of them changed last.
func TestStaleVIPBeforeNodePort(t *testing.T) {
	const ofNodePort, ofVIP = "10.244.0.5:53", "10.244.0.6:53"
	changes := []FrontendChange{change("0.0.0.0:30053", ofNodePort), change("192.0.2.1:30053", ofVIP)}
	for _, nodeAddr := range []string{"0.0.0.0", "192.0.2.1"} {
		for range 2 {
			slices.Reverse(changes)
			for endpoint, want := range map[string]bool{ofNodePort: true, ofVIP: false} {
				flow := newFlow(udp, "10.0.0.1:1", "192.0.2.1:30053", endpoint)
				got := staleAfter(flow, local("192.0.2.1"), func(f *frontends) {
					f.SetNodeAddrs(IPv4, []netip.Addr{addr(nodeAddr)})
					f.Update(changes...)
				})
				if got != want {
					t.Errorf("NodePorts on %s, changes %v: flow to %s: got stale %v, want %v",
						nodeAddr, changes, endpoint, got, want)
				}
			}
		}
	}
}

// A pass uses the current endpoints, not those at the time of the change.
func TestStaleUsesCurrentEndpoints(t *testing.T) {
	f := newFrontends()
	f.Update(change("10.96.0.10:53", "10.244.0.5:53"))
	todo := f.take()
	f.Update(change("10.96.0.10:53", "10.244.0.5:53", "10.244.0.6:53"))
	if f.stale(newFlow(udp, "10.0.0.1:1", "10.96.0.10:53", "10.244.0.6:53"), &todo, local()) {
		t.Error("got a stale flow to an endpoint that was added after the change")
	}
	f.Update(gone("10.96.0.10:53"))
	todo = f.take()
	f.Update(change("10.96.0.10:53", "10.244.0.7:53"))
	if f.stale(newFlow(udp, "10.0.0.1:1", "10.96.0.10:53", "10.244.0.7:53"), &todo, local()) {
		t.Error("got a stale flow to a frontend that was added again")
	}
}

func TestStaleNodeAddrs(t *testing.T) {
	const a, b, port, ep1, ep2 = "192.0.2.1", "192.0.2.2", "0.0.0.0:30053", "10.244.0.5:53", "10.244.0.6:53"
	type step = func(f *frontends)
	on := func(addrs ...string) step {
		var all []netip.Addr
		for _, s := range addrs {
			all = append(all, addr(s))
		}
		return func(f *frontends) { f.SetNodeAddrs(IPv4, all) }
	}
	update := func(changes ...FrontendChange) step { return func(f *frontends) { f.Update(changes...) } }
	nodePort, nodePortGone := update(change(port, ep1)), update(gone(port))
	for name, tc := range map[string]struct {
		dst, endpoint string
		steps         []step
		want          bool
	}{
		"listed":                      {a, ep2, []step{on(a), nodePort}, true},
		"listed, serving":             {a, ep1, []step{on(a), nodePort}, false},
		"listed loopback":             {"127.0.0.1", ep2, []step{on("127.0.0.1"), nodePort}, true},
		"not listed":                  {b, ep2, []step{on(a), nodePort}, false},
		"no addresses":                {a, ep2, []step{nodePort}, false},
		"NodePort gone":               {a, ep1, []step{on(a), nodePortGone}, true},
		"NodePort gone, not listed":   {b, ep1, []step{on(a), nodePortGone}, false},
		"address gone":                {a, ep1, []step{on(a), nodePort, on(b)}, true},
		"address added":               {b, ep2, []step{on(a), nodePort, on(a, b)}, true},
		"address added again":         {a, ep1, []step{on(a), nodePort, on(b), on(a)}, false},
		"address and NodePort gone":   {a, ep1, []step{on(a), nodePort, on(b), nodePortGone}, true},
		"address gone, another port":  {a, ep1, []step{on(a), update(change("0.0.0.0:30054", ep1)), on(b)}, false},
		"address gone without ports":  {a, ep1, []step{on(a), on(b), nodePort}, false},
		"all addresses, then listed":  {b, ep1, []step{on("0.0.0.0"), nodePort, on(a)}, true},
		"all addresses, still listed": {a, ep1, []step{on("0.0.0.0"), nodePort, on(a)}, false},
		"listed, then all addresses":  {a, ep1, []step{on(a), nodePort, on("0.0.0.0")}, false},
		"VIP gone, NodePort serves": {
			a, ep1, []step{on(a), update(change(a+":30053", ep2)), nodePort, update(gone(a + ":30053"))}, false,
		},
		"VIP gone, not the NodePort's endpoint": {
			a, ep2, []step{on(a), update(change(a+":30053", ep2)), nodePort, update(gone(a + ":30053"))}, true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			flow := newFlow(udp, "10.0.0.1:1", tc.dst+":30053", tc.endpoint)
			if got := staleAfter(flow, local(a, b, "127.0.0.1"), tc.steps...); got != tc.want {
				t.Errorf("%v: got stale %v, want %v", flow, got, tc.want)
			}
		})
	}
}
