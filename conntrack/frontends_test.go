package conntrack

import (
	"net/netip"
	"slices"
	"testing"
)

func addrPort(s string) netip.AddrPort { return netip.MustParseAddrPort(s) }

func change(frontend string, endpoints ...string) Change {
	c := Change{Frontend: addrPort(frontend)}
	for _, endpoint := range endpoints {
		c.Endpoints = append(c.Endpoints, addrPort(endpoint))
	}
	return c
}

func gone(frontend string) Change {
	return Change{Frontend: addrPort(frontend), Gone: true}
}

// onAllAddrs returns frontends with NodePorts on all local addresses.
func onAllAddrs() *frontends {
	f := newFrontends()
	f.setNodeAddrs(IPv4, []netip.Addr{unspecified(IPv4)})
	f.setNodeAddrs(IPv6, []netip.Addr{unspecified(IPv6)})
	return f
}

// local returns an isLocal for these addresses.
func local(addrs ...string) func(netip.Addr) bool {
	return func(a netip.Addr) bool { return slices.Contains(addrs, a.String()) }
}

func TestStale(t *testing.T) {
	isLocal := local("192.0.2.1", "198.51.100.1", "fd01::1", "127.0.0.1", "::1")
	const client, vip, ep1, ep2 = "10.0.0.1:4000", "10.96.0.10:53", "10.244.0.5:53", "10.244.0.6:53"
	const nodePort, onNode, onHost = "0.0.0.0:30053", "192.0.2.1:30053", "192.0.2.2:30053"
	for name, tc := range map[string]struct {
		change Change
		flow   Flow
		want   bool
	}{
		"endpoint serves":               {change(vip, ep1, ep2), newFlow(udp, client, vip, ep1), false},
		"endpoint is gone":              {change(vip, ep2), newFlow(udp, client, vip, ep1), true},
		"same address, other port":      {change(vip, "10.244.0.5:54"), newFlow(udp, client, vip, ep1), true},
		"last endpoint is gone":         {change(vip), newFlow(udp, client, vip, ep1), true},
		"first endpoint":                {change(vip, ep1), newFlow(udp, client, vip, vip), true},
		"never translated, no endpoint": {change(vip), newFlow(udp, client, vip, vip), true},
		"the VIP is its own endpoint":   {change(vip, vip), newFlow(udp, client, vip, vip), false},
		"TCP":                           {change(vip, ep2), newFlow(tcp, client, vip, ep1), false},
		"another port":                  {change(vip, ep2), newFlow(udp, client, "10.96.0.10:54", ep1), false},
		"another VIP":                   {change(vip, ep2), newFlow(udp, client, "10.96.0.11:53", ep1), false},
		"from the VIP":                  {change(vip, ep2), newFlow(udp, vip, client, client), false},
		"to the endpoint itself":        {change(vip, ep2), newFlow(udp, client, ep1, ep1), false},
		"in another zone":               {change(vip, ep2), newFlow(udp, client, vip, ep1).inZone(7, ZoneBoth), true},
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
			change("[fd96::10]:53", "[fd24::5]:53"), newFlow(udp, "[fd00::1]:1", "[fd96::10]:53", "[fd24::5]:53"), false,
		},
		"IPv6 endpoint is gone": {
			change("[fd96::10]:53", "[fd24::6]:53"), newFlow(udp, "[fd00::1]:1", "[fd96::10]:53", "[fd24::5]:53"), true,
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
		"NodePort of the other family":  {change("[::]:30053"), newFlow(udp, client, onNode, ep1), false},
		"NodePort is gone":              {gone(nodePort), newFlow(udp, client, onNode, ep1), true},
		"NodePort is gone, a host's":    {gone(nodePort), newFlow(udp, client, onNode, onNode), false},
		"frontend without port":         {change("10.96.0.10:0"), newFlow(udp, client, "10.96.0.10:0", ep1), false},
		"frontend without address":      {Change{}, newFlow(udp, client, "0.0.0.0:0", ep1), false},
		"unspecified address, port 0":   {change("0.0.0.0:0"), newFlow(udp, client, "192.0.2.1:0", ep1), false},
		"endpoint is the flow's client": {change(vip, client), newFlow(udp, client, vip, client), false},
	} {
		t.Run(name, func(t *testing.T) {
			f := onAllAddrs()
			f.update([]Change{change("198.51.100.1:30053", ep1), tc.change}) // a VIP of another service on the node
			todo := f.take()
			if got := f.stale(tc.flow, &todo, isLocal); got != tc.want {
				t.Errorf("stale(%v) = %v", tc.flow, got)
			}
		})
	}
}

// staleWith reports whether a flow is stale after some steps.
func staleWith(flow Flow, isLocal func(netip.Addr) bool, steps ...func(f *frontends)) bool {
	f := newFrontends()
	for _, step := range steps {
		step(f)
	}
	todo := f.take()
	return f.stale(flow, &todo, isLocal)
}

// A VIP on a node address takes precedence over a NodePort with its port,
// whichever changed last.
func TestStaleVIPBeforeNodePort(t *testing.T) {
	const ofNodePort, ofVIP = "10.244.0.5:53", "10.244.0.6:53"
	changes := []Change{change("0.0.0.0:30053", ofNodePort), change("192.0.2.1:30053", ofVIP)}
	for _, nodeAddr := range []string{"0.0.0.0", "192.0.2.1"} {
		for range 2 {
			slices.Reverse(changes)
			for endpoint, want := range map[string]bool{ofNodePort: true, ofVIP: false} {
				flow := newFlow(udp, "10.0.0.1:1", "192.0.2.1:30053", endpoint)
				got := staleWith(flow, local("192.0.2.1"), func(f *frontends) {
					f.setNodeAddrs(IPv4, []netip.Addr{addr(nodeAddr)})
					f.update(changes)
				})
				if got != want {
					t.Errorf("NodePorts on %s, changes %v: a flow to %s: stale %v", nodeAddr, changes, endpoint, got)
				}
			}
		}
	}
}

// A flow is judged by the current endpoints, not by those at the time of the
// change that a pass is for.
func TestStaleUsesTheCurrentEndpoints(t *testing.T) {
	f := newFrontends()
	f.update([]Change{change("10.96.0.10:53", "10.244.0.5:53")})
	todo := f.take()
	f.update([]Change{change("10.96.0.10:53", "10.244.0.5:53", "10.244.0.6:53")})
	if f.stale(newFlow(udp, "10.0.0.1:1", "10.96.0.10:53", "10.244.0.6:53"), &todo, local()) {
		t.Error("a flow to an endpoint that was added after the change is stale")
	}
	f.update([]Change{gone("10.96.0.10:53")})
	todo = f.take()
	f.update([]Change{change("10.96.0.10:53", "10.244.0.7:53")})
	if f.stale(newFlow(udp, "10.0.0.1:1", "10.96.0.10:53", "10.244.0.7:53"), &todo, local()) {
		t.Error("a flow to a frontend that came again is stale")
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
		return func(f *frontends) { f.setNodeAddrs(IPv4, all) }
	}
	update := func(changes ...Change) step { return func(f *frontends) { f.update(changes) } }
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
		"address came":                {b, ep2, []step{on(a), nodePort, on(a, b)}, true},
		"address came again":          {a, ep1, []step{on(a), nodePort, on(b), on(a)}, false},
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
			if got := staleWith(flow, local(a, b, "127.0.0.1"), tc.steps...); got != tc.want {
				t.Errorf("stale(%v) = %v", flow, got)
			}
		})
	}
}

// Only changes that can leave stale flows are checked.
func TestUpdateNotesWhatToCheck(t *testing.T) {
	const vip, ep1, ep2, ep3 = "10.96.0.10:53", "10.244.0.1:53", "10.244.0.2:53", "10.244.0.3:53"
	f := newFrontends()
	begins := change(vip, ep1, ep2, ep3)
	begins.Check = true
	for i, tc := range []struct {
		change Change
		want   bool
	}{
		{change(vip), true},
		{change(vip), false},
		{change(vip, ep2), true},
		{change(vip, ep1, ep2), false},
		{change(vip, ep1, ep2), false},
		{change(vip, ep1, ep2, ep3), false},
		{begins, true},
		{change(vip, ep2, ep3), true},
		{change(vip, ep1, ep2), true},
		{change(vip, ep2, ep1), false},
		{change("[::ffff:10.96.0.10]:53", "[::ffff:10.244.0.2]:53", ep1), false},
		{change(vip), true},
		{gone(vip), true},
		{change("10.96.0.10:0"), false},
		{Change{}, false},
		{Change{Gone: true}, false},
	} {
		f.update([]Change{tc.change})
		if todo := f.take(); todo.empty() == tc.want {
			t.Errorf("step %d, %v: to check: %+v, want %v", i, tc.change, todo, tc.want)
		}
	}
}

// Replace compares with the previous state, and frontends that are not named
// are gone.
func TestReplace(t *testing.T) {
	const ep1, ep2 = "10.244.0.1:53", "10.244.0.2:53"
	f := newFrontends()
	f.update([]Change{change("10.96.0.1:53", ep1), change("10.96.0.2:53", ep1), change("[fd96::1]:53", "[fd24::1]:53")})
	f.take()
	f.replace(IPv4, []Change{change("10.96.0.1:53", ep1, ep2), change("[fd96::2]:53")})
	if todo := f.take(); todo.changes != 1 || todo.ipv4.dsts.values[0] != addrPort("10.96.0.2:53") {
		t.Errorf("to check: %+v", todo)
	}
	f.replace(IPv4, []Change{change("10.96.0.1:53", ep2), change("10.96.0.3:53", ep2)})
	todo := f.take()
	if todo.changes != 2 || len(todo.ipv4.gone) != 0 {
		t.Errorf("to check: %+v", todo)
	}
	for flow, want := range map[Flow]bool{
		newFlow(udp, "10.0.0.1:1", "10.96.0.1:53", ep1):             true,
		newFlow(udp, "10.0.0.1:1", "10.96.0.3:53", ep2):             false,
		newFlow(udp, "[fd00::1]:1", "[fd96::1]:53", "[fd24::1]:53"): false,
		newFlow(udp, "[fd00::1]:1", "[fd96::1]:53", "[fd24::2]:53"): true,
		newFlow(udp, "[fd00::1]:1", "[fd96::2]:53", "[fd24::2]:53"): false,
	} {
		if got := f.stale(flow, &todo, local()); got != want {
			t.Errorf("stale(%v) = %v", flow, got)
		}
	}
}

// lostEndpoint agrees with a comparison of each endpoint with each other.
func TestLostEndpoint(t *testing.T) {
	subset := func(bits int) (endpoints []netip.AddrPort) {
		for i := range 5 {
			if bits>>i&1 != 0 {
				endpoints = append(endpoints, vipNumber(i))
			}
		}
		return endpoints
	}
	for before := range 32 {
		for now := range 32 {
			if got, want := lostEndpoint(subset(before), subset(now)), before&^now != 0; got != want {
				t.Errorf("lostEndpoint(%v, %v) = %v", subset(before), subset(now), got)
			}
		}
	}
}

// A comparison of the endpoints before and after a change takes linear time. A
// quadratic one of these would take hours.
func TestManyEndpoints(t *testing.T) {
	endpoints := make([]netip.AddrPort, 2_000_000)
	for i := range endpoints {
		endpoints[i] = netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}), 53)
	}
	frontend := addrPort("10.96.0.10:53")
	f := newFrontends()
	f.update([]Change{{Frontend: frontend, Endpoints: endpoints[1:]}})
	f.take()
	f.update([]Change{{Frontend: frontend, Endpoints: slices.Clone(endpoints)}})
	if todo := f.take(); !todo.empty() {
		t.Error("one more endpoint is to be checked")
	}
	f.update([]Change{{Frontend: frontend, Endpoints: slices.Delete(slices.Clone(endpoints), 1_000_000, 1_000_001)}})
	if todo := f.take(); todo.empty() {
		t.Error("one endpoint less is not to be checked")
	}
}

func BenchmarkLostEndpoint10000(b *testing.B) {
	endpoints := make([]netip.AddrPort, 10_001)
	for i := range endpoints {
		endpoints[i] = netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 128, byte(i >> 8), byte(i)}), 53)
	}
	b.ReportAllocs()
	for b.Loop() {
		if lostEndpoint(endpoints[:10_000], endpoints) {
			b.Fatal("no endpoint is lost")
		}
	}
}
