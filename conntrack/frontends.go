package conntrack

import (
	"net/netip"
	"slices"
	"sync"

	"golang.org/x/sys/unix"
)

// Change is the new state of one frontend of a UDP service.
type Change struct {
	// Frontend is the destination that clients use: a VIP and a port. With the
	// unspecified address (0.0.0.0 or ::) it is a NodePort of that family, on
	// the addresses of [Cleaner.SetNodeAddrs]. A frontend without a port is
	// ignored.
	Frontend netip.AddrPort

	// Endpoints are all endpoints that any client of the frontend may use, in
	// the order of netip.AddrPort.Compare. A service with several groups of
	// endpoints, as with externalTrafficPolicy: Local, lists the union. The
	// slice is kept and must not be modified. The frontends of a service can
	// share one slice, which is then compared with the previous one only once.
	Endpoints []netip.AddrPort

	// Gone reports whether the service no longer has the frontend.
	Gone bool

	// Check makes the next pass check the frontend even if no endpoint is gone:
	// it begins to serve, and flows from before may lead elsewhere.
	Check bool
}

// frontends are the UDP frontends that the rules serve now, and which of them
// changed since the last pass. A pass decides by the current state, not by the
// state at the time of a change: an endpoint that was added since then serves,
// too. Any goroutine may use it.
//
// The memory grows with the number of frontends plus the number of node
// addresses: a NodePort is one entry, however many addresses it listens on.
type frontends struct {
	mu         sync.RWMutex
	ipv4, ipv6 served
	unchecked  check
}

// served are the frontends of one family.
type served struct {
	// endpoints has the sorted endpoints of each frontend. A NodePort is found
	// under the unspecified address.
	endpoints map[netip.AddrPort][]netip.AddrPort
	// nodeAddrs are the addresses that NodePorts listen on. The set is replaced
	// rather than modified.
	nodeAddrs addrSet
}

func newFrontends() *frontends {
	f := &frontends{}
	f.ipv4.endpoints = make(map[netip.AddrPort][]netip.AddrPort)
	f.ipv6.endpoints = make(map[netip.AddrPort][]netip.AddrPort)
	return f
}

func (f *frontends) of(family Family) *served {
	if family == IPv4 {
		return &f.ipv4
	}
	return &f.ipv6
}

// update applies changes in their order, and notes which frontends a pass has
// to check.
func (f *frontends) update(changes []Change) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var lists endpointLists
	for _, change := range changes {
		frontend := unmap(change.Frontend)
		if !frontend.IsValid() || frontend.Port() == 0 {
			continue
		}
		s := f.of(familyOf(frontend.Addr()))
		if change.Gone {
			delete(s.endpoints, frontend)
			f.unchecked.addGone(frontend)
			continue
		}
		f.set(s, s.endpoints, frontend, lists.sorted(change.Endpoints), &lists)
		if change.Check {
			f.unchecked.add(frontend)
		}
	}
}

// replace makes the changes the whole state of a family: its other frontends
// are gone. Changes of the other family are ignored.
func (f *frontends) replace(family Family, changes []Change) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.of(family)
	before := s.endpoints
	s.endpoints = make(map[netip.AddrPort][]netip.AddrPort, len(changes))
	var lists endpointLists
	for _, change := range changes {
		frontend := unmap(change.Frontend)
		if frontend.Port() != 0 && !change.Gone && frontend.IsValid() && familyOf(frontend.Addr()) == family {
			f.set(s, before, frontend, lists.sorted(change.Endpoints), &lists)
			if change.Check {
				f.unchecked.add(frontend)
			}
		}
	}
	for frontend := range before {
		if _, still := s.endpoints[frontend]; !still {
			f.unchecked.addGone(frontend)
		}
	}
}

// set sets the endpoints of a frontend and compares them with those before.
func (f *frontends) set(s *served, before map[netip.AddrPort][]netip.AddrPort, frontend netip.AddrPort,
	endpoints []netip.AddrPort, lists *endpointLists) {
	old, known := before[frontend]
	s.endpoints[frontend] = endpoints
	if !known || lists.mayLeaveStale(old, endpoints) {
		f.unchecked.add(frontend)
	}
}

// setNodeAddrs sets the addresses that the NodePorts of a family listen on. The
// unspecified address stands for all local addresses except loopback.
func (f *frontends) setNodeAddrs(family Family, addrs []netip.Addr) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s, now := f.of(family), newAddrSet(addrs)
	if now.equal(s.nodeAddrs) {
		return
	}
	before := s.nodeAddrs
	s.nodeAddrs = now
	nodePorts := false
	for frontend := range s.endpoints {
		if frontend.Addr().IsUnspecified() {
			nodePorts = true
			f.unchecked.add(frontend)
		}
	}
	if nodePorts {
		f.unchecked.of(family).former.addMissing(before, now)
	}
}

// take returns the frontends to check, and forgets them.
func (f *frontends) take() check {
	f.mu.Lock()
	defer f.mu.Unlock()
	c := f.unchecked
	f.unchecked = check{}
	return c
}

// putBack makes the next take return c, too.
func (f *frontends) putBack(c check) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.unchecked.merge(c)
}

func (f *frontends) hasUnchecked() bool {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return !f.unchecked.empty()
}

// stale reports whether a flow has to be deleted: a UDP flow to a frontend
// whose answers do not come from a serving endpoint. isLocal reports whether an
// address is local; it is called only if the answer depends on it.
//
//   - A flow to a VIP is also stale if it was never translated, so that its
//     answers would come from the VIP itself. It was created when there were no
//     endpoints or no rules.
//   - The same rule applies to a flow to a NodePort on an address that
//     NodePorts listen on. A VIP with the same address and port takes
//     precedence, as in the rules. A flow to the same port of another host only
//     passes through the node, and stays.
//   - A translated flow to a frontend that is gone is stale, and so is one to a
//     NodePort on a former node address. A flow that was never translated
//     stays: the address may belong to another host now.
//
// Zones do not matter: the rules see the packets of all zones. A flow is
// deleted in its own zone only.
func (f *frontends) stale(flow Flow, c *check, isLocal func(netip.Addr) bool) bool {
	if flow.Protocol != unix.IPPROTO_UDP {
		return false
	}
	dst, family := flow.Original.Dst, flow.Family()
	nodePort := netip.AddrPortFrom(unspecified(family), dst.Port())

	f.mu.RLock()
	s := f.of(family)
	vipEndpoints, isVIP := s.endpoints[dst]
	nodePortEndpoints, isNodePort := s.endpoints[nodePort]
	nodeAddrs := s.nodeAddrs
	f.mu.RUnlock()

	if isVIP {
		return !contains(vipEndpoints, flow.Reply.Src)
	}
	serving := isNodePort && contains(nodePortEndpoints, flow.Reply.Src)
	gone := flow.DNATed() && c.of(family).isGone(dst, nodePort, isNodePort, nodeAddrs, isLocal)
	if isNodePort && (gone || !serving) && nodeAddrs.contains(dst.Addr(), isLocal) {
		return !serving
	}
	return gone
}

// endpointLists compares the endpoints of frontends. It remembers its last
// results: the frontends of a service share their endpoints.
type endpointLists struct {
	given, result []netip.AddrPort // of sorted
	before, now   []netip.AddrPort // of mayLeaveStale
	stale         bool
}

// sorted returns endpoints in the form that lookups need: in order, without
// IPv4-mapped addresses and zones. Usually that is the given slice.
func (l *endpointLists) sorted(endpoints []netip.AddrPort) []netip.AddrPort {
	if !sameSlice(l.given, endpoints) {
		l.given, l.result = endpoints, sortedEndpoints(endpoints)
	}
	return l.result
}

func sortedEndpoints(endpoints []netip.AddrPort) []netip.AddrPort {
	if !slices.ContainsFunc(endpoints, func(e netip.AddrPort) bool { return e != unmap(e) }) &&
		slices.IsSortedFunc(endpoints, netip.AddrPort.Compare) {
		return endpoints
	}
	out := make([]netip.AddrPort, len(endpoints))
	for i, e := range endpoints {
		out[i] = unmap(e)
	}
	slices.SortFunc(out, netip.AddrPort.Compare)
	return out
}

// mayLeaveStale reports whether flows of a frontend may be stale after a change
// of its endpoints: it lost an endpoint, or it got its first endpoint.
func (l *endpointLists) mayLeaveStale(before, now []netip.AddrPort) bool {
	if !sameSlice(l.before, before) || !sameSlice(l.now, now) {
		l.before, l.now = before, now
		l.stale = len(before) == 0 && len(now) > 0 || lostEndpoint(before, now)
	}
	return l.stale
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

// contains reports whether an endpoint is among sorted ones. A binary search
// needs no memory besides the slice that the frontends share.
func contains(endpoints []netip.AddrPort, endpoint netip.AddrPort) bool {
	_, found := slices.BinarySearchFunc(endpoints, endpoint, netip.AddrPort.Compare)
	return found
}

// unmap returns an address in the form that decoded flows have.
func unmap(a netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(a.Addr().Unmap().WithZone(""), a.Port())
}

func unspecified(family Family) netip.Addr {
	if family == IPv6 {
		return netip.IPv6Unspecified()
	}
	return netip.IPv4Unspecified()
}
