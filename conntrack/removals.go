package conntrack

import (
	"maps"
	"net/netip"
	"slices"
)

// Removal is an endpoint of a TCP or SCTP service that no longer exists.
type Removal struct {
	Protocol uint8 // unix.IPPROTO_TCP or unix.IPPROTO_SCTP
	Endpoint netip.AddrPort
	// Serves reports whether connections of a frontend to the endpoint are
	// deleted. A NodePort has the unspecified address, as in FrontendChange. It
	// is called on Run's goroutine. If the endpoint exists again, it must
	// return false before the rules lead to the endpoint.
	Serves func(frontend netip.AddrPort) bool
	// Done is called on Run's goroutine after both passes, with the number of
	// connections that they found.
	Done func(connections int)
}

// removal is a Removal that is being checked. Run's goroutine owns found.
type removal struct {
	Removal
	found int
}

// Remove reports endpoints that no longer exist. The rules must not lead to
// them. The caller limits the number of removals that are not done.
func (f *frontends) Remove(removals ...Removal) {
	f.mu.Lock()
	defer f.unlock()
	for _, r := range removals {
		f.unchecked.changes++
		f.unchecked.addRemovals(keyOf(r.Protocol, r.Endpoint), &removal{Removal: r})
	}
}

// finish reports the removals of a check after both passes.
func (c *check) finish() {
	for _, done := range c.removals {
		for _, r := range done {
			r.Done(r.found)
		}
	}
}

// isOfRemoval reports whether a flow is a connection to the endpoint of a
// removal, and counts it.
func (f *frontends) isOfRemoval(flow trackedFlow, c *check, isLocal func(netip.Addr) bool) bool {
	for _, r := range c.removals[key{flow.protocol, flow.reply.src}] {
		f.mu.RLock()
		nodeAddrs := f.of(flow.family()).nodeAddrs
		f.mu.RUnlock()
		if r.includes(flow, nodeAddrs, isLocal) {
			r.found++
			return true
		}
	}
	return false
}

// includes reports whether a flow with replies from the endpoint is a
// connection of one of the frontends, and has not ended.
func (r *removal) includes(flow trackedFlow, nodeAddrs addrSet, isLocal func(netip.Addr) bool) bool {
	dst := flow.original.dst
	nodePort := netip.AddrPortFrom(flow.family().Unspecified(), dst.Port())
	return flow.translated() && !flow.ended() &&
		(r.Serves(dst) || r.Serves(nodePort) && nodeAddrs.contains(dst.Addr(), isLocal))
}

// maxOfPort is the number of endpoints with the same port that have dumps of
// their own. With three, two more walks of the kernel cost as much as the
// messages for 30 % of all entries (see maxDumps).
const maxOfPort = 2

// removed selects the connections to the endpoints of the removals of a family.
func (c *check) removed(family Family) (all selections) {
	ofPort := make(map[key]int)
	portOf := func(k key) key { return key{k.protocol, netip.AddrPortFrom(netip.Addr{}, k.at.Port())} }
	keys := slices.DeleteFunc(slices.Collect(maps.Keys(c.removals)), func(k key) bool { return k.family() != family })
	for _, k := range keys {
		ofPort[portOf(k)]++
	}
	for _, k := range keys {
		one := Selection{
			Family: family, Protocol: k.protocol, Addr: k.at.Addr(), Port: k.at.Port(),
			Translated: true, Replies: true,
		}
		if ofPort[portOf(k)] > maxOfPort {
			one.Addr = netip.Addr{}
		}
		all.add(one)
	}
	return all
}
