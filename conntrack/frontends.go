package conntrack

import (
	"net/netip"
	"sync"
)

// Change is the new state of one frontend of a UDP service.
type Change struct {
	// Frontend is the destination that clients use: a VIP and a port. With
	// the unspecified address (0.0.0.0 or ::) it is a NodePort of that
	// family, on the addresses of [Cleaner.SetNodeAddrs]. A frontend without
	// a port is ignored.
	Frontend netip.AddrPort

	// Endpoints are all endpoints that a client of the frontend may use. If
	// they differ between clients, as with externalTrafficPolicy: Local, this
	// is the union. The Cleaner keeps the slice, which must not be modified.
	//
	// To save time, sort the slice by netip.AddrPort.Compare, and share it
	// between the frontends of a service: it is then compared with the
	// previous endpoints only once.
	Endpoints []netip.AddrPort

	// Gone reports whether the service no longer has the frontend.
	Gone bool

	// Check makes the next pass check the frontend even if no endpoint was
	// removed. Set it when the frontend begins to serve: previous flows may
	// lead elsewhere.
	Check bool
}

// frontends are the UDP frontends that the rules serve now, and the changes
// and removals since the last pass. A pass decides by the current state, not
// by the state at the time of a change: an endpoint that was added later
// serves, too. It is safe for concurrent use.
//
// The memory grows with the number of frontends plus the number of node
// addresses: a NodePort is one entry, however many addresses it listens on.
type frontends struct {
	mu sync.RWMutex
	byFamily[served]
	unchecked check
}

// served are the frontends of one family.
type served struct {
	// endpoints are the sorted endpoints of each frontend. The key of a
	// NodePort has the unspecified address.
	endpoints map[netip.AddrPort][]netip.AddrPort
	// nodeAddrs are the addresses that NodePorts listen on. The set is
	// replaced rather than modified.
	nodeAddrs addrSet
}

func newFrontends() *frontends {
	f := new(frontends)
	f.ipv4.endpoints = make(map[netip.AddrPort][]netip.AddrPort)
	f.ipv6.endpoints = make(map[netip.AddrPort][]netip.AddrPort)
	return f
}

// update applies changes in their order, and records the frontends that a
// pass has to check.
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

// replace sets all frontends of a family. Its other frontends are gone.
// Changes of the other family are ignored.
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

// set sets the endpoints of a frontend. It records the frontend for a check
// if flows may be stale.
func (f *frontends) set(s *served, before map[netip.AddrPort][]netip.AddrPort, frontend netip.AddrPort,
	endpoints []netip.AddrPort, lists *endpointLists) {
	old, known := before[frontend]
	s.endpoints[frontend] = endpoints
	if !known || lists.mayLeaveStale(old, endpoints) {
		f.unchecked.add(frontend)
	}
}

// miss records the TCP frontends of a family, whose rules were missing.
func (f *frontends) miss(family Family, frontends []netip.AddrPort) {
	frontends = sortedEndpoints(frontends)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.unchecked.changes += len(frontends)
	f.unchecked.of(family).missed = frontends
}

// setNodeAddrs sets the addresses that the NodePorts of a family listen on.
// The unspecified address stands for all local addresses except loopback.
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

// take removes and returns the recorded work.
func (f *frontends) take() check {
	f.mu.Lock()
	defer f.mu.Unlock()
	c := f.unchecked
	f.unchecked = check{}
	return c
}

// putBack records c again after a failed pass.
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

// unmap returns an address in the form that decoded flows have.
func unmap(a netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(a.Addr().Unmap().WithZone(""), a.Port())
}
