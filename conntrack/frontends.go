package conntrack

import (
	"cmp"
	"maps"
	"net/netip"
	"sync"

	"golang.org/x/sys/unix"
)

// FrontendChange is the new state of one frontend of a service.
type FrontendChange struct {
	// Protocol is unix.IPPROTO_UDP (also if it is 0), IPPROTO_TCP or
	// IPPROTO_SCTP.
	Protocol uint8

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
	// removed. Set it when a UDP frontend begins to serve, or if rules were
	// missing: previous flows may lead elsewhere.
	Check bool
}

// key is a frontend or an endpoint of a protocol. A NodePort has the
// unspecified address.
type key struct {
	protocol uint8
	at       netip.AddrPort
}

// keyOf returns a key in the form that decoded flows have.
func keyOf(protocol uint8, at netip.AddrPort) key {
	return key{cmp.Or(protocol, unix.IPPROTO_UDP), netip.AddrPortFrom(at.Addr().Unmap().WithZone(""), at.Port())}
}

func (k key) family() Family { return familyOf(k.at.Addr()) }

// frontends are the frontends that the rules serve now, and the changes and
// removals since the last pass. A pass decides by the current state, not
// by the state at the time of a change: an endpoint that was added later
// serves, too. It is safe for concurrent use.
//
// The memory grows with the number of frontends plus the number of node
// addresses: a NodePort is one entry, however many addresses it listens on.
type frontends struct {
	mu sync.RWMutex
	byFamily[served]
	unchecked check
	wake      chan struct{} // capacity 1; receives a value after a change to check
}

// served are the frontends of one family.
type served struct {
	// endpoints are the sorted endpoints of each frontend.
	endpoints map[key][]netip.AddrPort
	most      int // frontends at a time, since endpoints was last compacted
	// nodeAddrs are the addresses that NodePorts listen on. The set is
	// replaced rather than modified.
	nodeAddrs addrSet
}

func newFrontends() *frontends {
	f := &frontends{wake: make(chan struct{}, 1)}
	f.ipv4.endpoints = make(map[key][]netip.AddrPort)
	f.ipv6.endpoints = make(map[key][]netip.AddrPort)
	return f
}

// unlock unlocks mu, and wakes Run if a pass is needed.
func (f *frontends) unlock() {
	defer f.mu.Unlock()
	if f.unchecked.empty() {
		return
	}
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// Update applies changes in their order, and records the frontends of which
// flows may be stale.
func (f *frontends) Update(changes ...FrontendChange) {
	f.mu.Lock()
	defer f.unlock()
	var lists endpointLists
	defer f.ipv4.compact()
	defer f.ipv6.compact()
	for _, change := range changes {
		frontend := keyOf(change.Protocol, change.Frontend)
		if !frontend.at.IsValid() || frontend.at.Port() == 0 {
			continue
		}
		s := f.of(frontend.family())
		if change.Gone {
			delete(s.endpoints, frontend)
			f.unchecked.add(frontend)
			f.unchecked.setGone(frontend)
			continue
		}
		before, known := s.endpoints[frontend]
		now := lists.sorted(change.Endpoints)
		s.endpoints[frontend] = now
		s.most = max(s.most, len(s.endpoints))
		// Without an endpoint, the rules reject the first packet of an attempt
		// to connect, and the kernel tracks no flow.
		begins := frontend.protocol == unix.IPPROTO_UDP && len(before) == 0 && len(now) > 0
		if !known || begins || lists.lost(before, now) || change.Check {
			f.unchecked.add(frontend)
		}
	}
}

// compact releases memory after the deletion of most frontends: a map never
// shrinks.
func (s *served) compact() {
	const small = 4096
	if s.most > small && len(s.endpoints) < s.most/4 {
		left := make(map[key][]netip.AddrPort, len(s.endpoints)) // maps.Clone would keep the size
		maps.Copy(left, s.endpoints)
		s.endpoints, s.most = left, len(left)
	}
}

// SetNodeAddrs sets the addresses that the NodePorts of a family listen on.
// The unspecified address stands for all local addresses except loopback.
// Before the first call, NodePorts listen on no address.
func (f *frontends) SetNodeAddrs(family Family, addrs []netip.Addr) {
	f.mu.Lock()
	defer f.unlock()
	s, now := f.of(family), newAddrSet(addrs)
	if maps.Equal(now, s.nodeAddrs) {
		return
	}
	before := s.nodeAddrs
	s.nodeAddrs = now
	nodePorts := false
	for frontend := range s.endpoints {
		if frontend.at.Addr().IsUnspecified() {
			nodePorts = true
			f.unchecked.add(frontend)
		}
	}
	if nodePorts {
		f.unchecked.former.addMissing(before, now)
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
