package conntrack

import (
	"maps"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"
)

// check is the work of a pass. Its size is bounded, however many changes are
// recorded while the kernel refuses to list flows.
type check struct {
	changes int // number of recorded changes
	// changed selects the flows to changed frontends, and attempts those
	// attempts to connect to changed frontends, which the pass lists.
	changed, attempts byFamily[selections]
	// gone are the frontends that are no longer served, with their owners, of
	// which goneOf has the numbers. former are the addresses that NodePorts no
	// longer listen on.
	gone   map[key]string
	goneOf map[string]int
	former addrSet
	// removals are the endpoints whose connections the pass deletes.
	removals map[key][]*removal
}

// maxGone is the maximum number of frontends, and of addresses, that a check
// records as gone (9 MB). Flows to further ones stay until they time out. An
// owner has at most as many as are left for the others.
const maxGone = 1 << 17

// byFamily has a value for each family.
type byFamily[T any] struct{ ipv4, ipv6 T }

func (b *byFamily[T]) of(family Family) *T {
	if family == IPv4 {
		return &b.ipv4
	}
	return &b.ipv6
}

func (c *check) empty() bool { return c.changes == 0 }

func (c *check) add(frontend key) {
	c.changes++
	family := frontend.family()
	one := Selection{Family: family, Protocol: frontend.protocol, Port: frontend.at.Port()}
	if !frontend.at.Addr().IsUnspecified() {
		one.Addr = frontend.at.Addr()
	}
	if frontend.protocol == unix.IPPROTO_UDP {
		c.changed.of(family).add(one)
		return
	}
	one.Answer = Unanswered
	c.attempts.of(family).add(one)
}

func (c *check) setGone(frontend key, owner string) {
	if c.gone == nil {
		c.gone, c.goneOf = make(map[key]string), make(map[string]int)
	}
	if _, known := c.gone[frontend]; !known && len(c.gone)+c.goneOf[owner] < maxGone {
		c.gone[frontend] = owner
		c.goneOf[owner]++
	}
}

func (c *check) addRemovals(endpoint key, removals ...*removal) {
	if c.removals == nil {
		c.removals = make(map[key][]*removal)
	}
	c.removals[endpoint] = append(c.removals[endpoint], removals...)
}

// merge adds the work of another check, which it does not modify.
func (c *check) merge(o check) {
	c.changes += o.changes
	for _, family := range []Family{IPv4, IPv6} {
		c.changed.of(family).merge(*o.changed.of(family))
		c.attempts.of(family).merge(*o.attempts.of(family))
	}
	for frontend, owner := range o.gone {
		c.setGone(frontend, owner)
	}
	c.former.addMissing(o.former, nil)
	for endpoint, removals := range o.removals {
		c.addRemovals(endpoint, removals...)
	}
}

// isGone reports whether a destination is no longer served: its VIP is gone,
// or its NodePort is gone, or NodePorts no longer listen on its address.
func (c *check) isGone(dst, nodePort key, isNodePort bool, nodeAddrs addrSet, isLocal func(netip.Addr) bool) bool {
	if _, gone := c.gone[dst]; gone {
		return true
	}
	_, gone := c.gone[nodePort]
	return (gone || isNodePort) && c.former.contains(dst.at.Addr(), isLocal) ||
		gone && nodeAddrs.contains(dst.at.Addr(), isLocal)
}

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
// messages for 30 % of all entries (see MaxDumps).
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

// stale reports whether a flow has to be deleted: a connection to an endpoint
// that no longer exists (see isOfRemoval), or a UDP flow, or an attempt to
// connect that has no answer, to a frontend whose replies do not come from a
// serving endpoint. isLocal reports whether an address is local; it is called
// only if the result depends on it. For flows and attempts:
//
//   - A flow to a VIP is also stale if it was never translated, so that its
//     replies would come from the VIP itself. It was created when the VIP
//     had no endpoints or no rules.
//   - The same rule applies to a flow to a NodePort on an address that
//     NodePorts listen on. A VIP with the same address and port takes
//     precedence, as in the rules. A flow to the same port of another host is
//     only forwarded by the node, and stays.
//   - A translated flow to a frontend that is gone is stale. The same rule
//     applies to a flow to a NodePort on a former node address. A flow that
//     was never translated stays: the address may belong to another host
//     now.
//
// Zones do not matter: the rules see the packets of all zones. A flow is
// deleted in its own zone only.
func (f *frontends) stale(flow trackedFlow, c *check, isLocal func(netip.Addr) bool) bool {
	if f.isOfRemoval(flow, c, isLocal) {
		return true
	}
	if flow.protocol != unix.IPPROTO_UDP && !flow.attempt() {
		return false
	}
	family := flow.family()
	dst := key{flow.protocol, flow.original.dst}
	nodePort := key{flow.protocol, netip.AddrPortFrom(family.Unspecified(), dst.at.Port())}

	f.mu.RLock()
	s := f.of(family)
	vipEndpoints, isVIP := s.endpoints[dst]
	nodePortEndpoints, isNodePort := s.endpoints[nodePort]
	nodeAddrs := s.nodeAddrs
	f.mu.RUnlock()

	if isVIP {
		return !contains(vipEndpoints, flow.reply.src)
	}
	serving := isNodePort && contains(nodePortEndpoints, flow.reply.src)
	gone := flow.translated() && c.isGone(dst, nodePort, isNodePort, nodeAddrs, isLocal)
	if isNodePort && (gone || !serving) && nodeAddrs.contains(dst.at.Addr(), isLocal) {
		return !serving
	}
	return gone
}
