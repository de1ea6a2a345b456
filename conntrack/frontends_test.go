package conntrack

import (
	"net/netip"
	"slices"
	"testing"
)

func change(frontend string, endpoints ...string) FrontendChange {
	c := FrontendChange{Frontend: addrPort(frontend)}
	for _, endpoint := range endpoints {
		c.Endpoints = append(c.Endpoints, addrPort(endpoint))
	}
	return c
}

func gone(frontend string) FrontendChange {
	return FrontendChange{Frontend: addrPort(frontend), Gone: true}
}

// onAllAddrs returns frontends with NodePorts on all local addresses.
func onAllAddrs() *frontends {
	f := newFrontends()
	f.SetNodeAddrs(IPv4, []netip.Addr{IPv4.Unspecified()})
	f.SetNodeAddrs(IPv6, []netip.Addr{IPv6.Unspecified()})
	return f
}

// local returns an isLocal function for these addresses.
func local(addrs ...string) func(netip.Addr) bool {
	return func(a netip.Addr) bool { return slices.Contains(addrs, a.String()) }
}

// Only changes that can leave stale flows need a check.
func TestUpdateRecordsChecks(t *testing.T) {
	const vip, ep1, ep2, ep3 = "10.96.0.10:53", "10.244.0.1:53", "10.244.0.2:53", "10.244.0.3:53"
	f := newFrontends()
	begins := change(vip, ep1, ep2, ep3)
	begins.Check = true
	for i, tc := range []struct {
		change FrontendChange
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
		{FrontendChange{}, false},
		{FrontendChange{Gone: true}, false},
	} {
		f.Update(tc.change)
		if todo := f.take(); todo.empty() == tc.want {
			t.Errorf("step %d, %v: got check %+v, want a check: %v", i, tc.change, todo, tc.want)
		}
	}
}
