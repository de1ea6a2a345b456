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
	// Serves reports whether connections of a frontend to the endpoint are
	// deleted. A NodePort has the unspecified address, as in Change. It is
	// called on Run's goroutine. If the endpoint exists again, it must return
	// false before the rules lead to the endpoint.
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

// remove records removals for the next pass. The caller limits their number.
func (f *frontends) remove(removals []Removal) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, r := range removals {
		r.Endpoint = unmap(r.Endpoint)
		f.unchecked.addRemoval(&removal{Removal: r})
	}
}

// finish reports the removals of a check after both passes.
func (c *check) finish() {
	for _, family := range []*familyCheck{&c.ipv4, &c.ipv6} {
		for _, done := range family.removals {
			for _, r := range done {
				r.Done(r.found)
			}
		}
	}
}

// isOfRemoval reports whether a flow is a connection to the endpoint of a
// removal, and counts it.
func (f *frontends) isOfRemoval(flow trackedFlow, c *check, isLocal func(netip.Addr) bool) bool {
	family := flow.family()
	for _, r := range c.of(family).removals[endpointKey{flow.protocol, flow.reply.src}] {
		f.mu.RLock()
		nodeAddrs := f.of(family).nodeAddrs
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
