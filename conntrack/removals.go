package conntrack

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
)

// Removal is an endpoint of a TCP or SCTP service that no longer exists.
type Removal struct {
	Protocol uint8 // unix.IPPROTO_TCP or unix.IPPROTO_SCTP
	Endpoint netip.AddrPort
	// Frontends are the frontends whose connections to the endpoint are
	// deleted. A NodePort has the unspecified address, as in Change.
	Frontends []netip.AddrPort
	// Done is called on Run's goroutine after both passes, with the number of
	// connections that they found.
	Done func(connections int)
}

// removal is a Removal that is being checked.
type removal struct {
	Removal
	frontends map[netip.AddrPort]struct{}
	found     int // owned by Run's goroutine
	// returned is set when the endpoint exists again. The mutex of frontends
	// guards it.
	returned bool
}

// endpointKey identifies an endpoint of a protocol.
type endpointKey struct {
	protocol uint8
	endpoint netip.AddrPort
}

func (k endpointKey) compare(o endpointKey) int {
	return cmp.Or(cmp.Compare(k.protocol, o.protocol), k.endpoint.Compare(o.endpoint))
}

// portOnly returns a key for all endpoints with the protocol and port of k.
func (k endpointKey) portOnly() endpointKey {
	return endpointKey{k.protocol, netip.AddrPortFrom(netip.Addr{}, k.endpoint.Port())}
}

// filter returns the dump of all translated flows with replies from the
// endpoint. Without an address or a port it selects all endpoints.
func (k endpointKey) filter(family Family) dumpFilter {
	return dumpFilter{
		family: family, protocol: k.protocol, src: k.endpoint.Addr(), srcPort: k.endpoint.Port(), translated: true,
	}
}

// maxRemoved is the maximum number of addresses whose endpoints are being
// checked (5 MB). Connections to further ones stay.
const maxRemoved = 1 << 14

// remove records removals for the next pass. If too many are being checked, it
// ignores further ones.
func (f *frontends) remove(removals []Removal) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, given := range removals {
		r := &removal{Removal: given, frontends: make(map[netip.AddrPort]struct{}, len(given.Frontends))}
		r.Endpoint = unmap(given.Endpoint)
		for _, frontend := range given.Frontends {
			r.frontends[unmap(frontend)] = struct{}{}
		}
		if addr := r.Endpoint.Addr(); addr.IsValid() && len(f.removed) < maxRemoved {
			f.removed[addr] = append(f.removed[addr], r)
			f.unchecked.addRemoval(r)
		}
	}
}

// restore records that endpoints with these addresses exist again. The rules
// must not lead to them yet.
func (f *frontends) restore(addrs []netip.Addr) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, addr := range addrs {
		for _, r := range f.removed[addr] {
			r.returned = true
		}
	}
}

// finish forgets removals after both passes.
func (f *frontends) finish(c check) {
	for _, family := range []*familyCheck{&c.ipv4, &c.ipv6} {
		for _, done := range family.removals {
			for _, r := range done {
				f.forget(r)
				r.Done(r.found)
			}
		}
	}
}

func (f *frontends) forget(r *removal) {
	f.mu.Lock()
	defer f.mu.Unlock()
	addr := r.Endpoint.Addr()
	left := slices.DeleteFunc(f.removed[addr], func(o *removal) bool { return o == r })
	if f.removed[addr] = left; len(left) == 0 {
		delete(f.removed, addr)
	}
}

// isOfRemoval reports whether a flow is a connection to the endpoint of a
// removal, and counts it.
func (f *frontends) isOfRemoval(flow trackedFlow, c *check, isLocal func(netip.Addr) bool) bool {
	family := flow.family()
	for _, r := range c.of(family).removals[endpointKey{flow.protocol, flow.reply.src}] {
		f.mu.RLock()
		returned, nodeAddrs := r.returned, f.of(family).nodeAddrs
		f.mu.RUnlock()
		if !returned && r.includes(flow, nodeAddrs, isLocal) {
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
	if !flow.translated() || flow.ended() {
		return false
	}
	if _, vip := r.frontends[dst]; vip {
		return true
	}
	_, nodePort := r.frontends[netip.AddrPortFrom(flow.family().Unspecified(), dst.Port())]
	return nodePort && nodeAddrs.contains(dst.Addr(), isLocal)
}

// maxOfPort is the number of endpoints with the same port that have dumps of
// their own. With three, two more walks of the kernel cost as much as the
// messages for 30 % of all entries (see maxDumps).
const maxOfPort = 2

// removalFilters returns the dumps that list all flows to the endpoints of
// removals: one for each endpoint, or for each protocol and port, or for each
// protocol.
func removalFilters(removals map[endpointKey][]*removal, family Family, limit int) (filters []dumpFilter) {
	ofPort := make(map[endpointKey]int)
	for k := range removals {
		ofPort[k.portOnly()]++
	}
	keys := reduce(slices.Collect(maps.Keys(removals)), func(k endpointKey) endpointKey {
		if port := k.portOnly(); family == IPv6 || ofPort[port] > maxOfPort {
			return port
		}
		return k
	})
	if len(keys) > limit {
		keys = reduce(keys, endpointKey.portOnly)
	}
	if len(keys) > limit {
		keys = reduce(keys, func(k endpointKey) endpointKey { return endpointKey{protocol: k.protocol} })
	}
	for _, k := range keys {
		filters = append(filters, k.filter(family))
	}
	return filters
}

// reduce returns the results of a function, sorted, without duplicates.
func reduce(keys []endpointKey, to func(endpointKey) endpointKey) []endpointKey {
	out := make([]endpointKey, len(keys))
	for i, k := range keys {
		out[i] = to(k)
	}
	slices.SortFunc(out, endpointKey.compare)
	return slices.Compact(out)
}
