package conntrack

import (
	"net/netip"
	"slices"
)

// endpointLists compares the endpoints of frontends. It caches its last
// results, because the frontends of a service share their endpoints.
type endpointLists struct {
	given, result []netip.AddrPort // of sorted
	before, now   []netip.AddrPort // of lost
	lostOne       bool
}

// sorted returns endpoints in the form that lookups need: in order, without
// IPv4-mapped addresses and zones. It returns the given slice if possible.
func (l *endpointLists) sorted(endpoints []netip.AddrPort) []netip.AddrPort {
	if !sameSlice(l.given, endpoints) {
		l.given, l.result = endpoints, sortedEndpoints(endpoints)
	}
	return l.result
}

func sortedEndpoints(endpoints []netip.AddrPort) []netip.AddrPort {
	if !slices.ContainsFunc(endpoints, func(e netip.AddrPort) bool { return e != keyOf(0, e).at }) &&
		slices.IsSortedFunc(endpoints, netip.AddrPort.Compare) {
		return endpoints
	}
	out := make([]netip.AddrPort, len(endpoints))
	for i, e := range endpoints {
		out[i] = keyOf(0, e).at
	}
	slices.SortFunc(out, netip.AddrPort.Compare)
	return out
}

// lost is lostEndpoint with a cache.
func (l *endpointLists) lost(before, now []netip.AddrPort) bool {
	if !sameSlice(l.before, before) || !sameSlice(l.now, now) {
		l.before, l.now, l.lostOne = before, now, lostEndpoint(before, now)
	}
	return l.lostOne
}

// lostEndpoint reports whether now lacks an endpoint of before. Both are
// sorted.
func lostEndpoint(before, now []netip.AddrPort) bool {
	for _, e := range before {
		for len(now) > 0 && now[0] != e && now[0].Compare(e) < 0 {
			now = now[1:]
		}
		if len(now) == 0 || now[0] != e {
			return true
		}
	}
	return false
}

func sameSlice(a, b []netip.AddrPort) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}

// contains reports whether a sorted slice has an endpoint. Unlike a set, a
// binary search needs no memory besides the slice that the frontends share.
func contains(endpoints []netip.AddrPort, endpoint netip.AddrPort) bool {
	_, found := slices.BinarySearchFunc(endpoints, endpoint, netip.AddrPort.Compare)
	return found
}
