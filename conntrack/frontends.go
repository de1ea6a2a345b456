package conntrack

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/nft/nfnetlink"
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

	// Owner is who may have many frontends, such as a namespace. If too many
	// are gone at once, each owner has a share of those that are checked.
	Owner string

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
			f.unchecked.setGone(frontend, change.Owner)
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

// addrSet is a set of addresses of one family. The unspecified address stands
// for all local addresses except loopback.
type addrSet map[netip.Addr]struct{}

func newAddrSet(addrs []netip.Addr) addrSet {
	s := make(addrSet, len(addrs))
	for _, addr := range addrs {
		s[addr.Unmap().WithZone("")] = struct{}{}
	}
	return s
}

// contains reports whether addr is in the set. It calls isLocal only if the
// result depends on it.
func (s addrSet) contains(addr netip.Addr, isLocal func(netip.Addr) bool) bool {
	if _, ok := s[addr]; ok {
		return true
	}
	_, allLocal := s[familyOf(addr).Unspecified()]
	return allLocal && !addr.IsLoopback() && isLocal(addr)
}

// addMissing adds the addresses that a contains and b does not, up to maxGone
// addresses in total.
func (s *addrSet) addMissing(a, b addrSet) {
	for addr := range a {
		if _, ok := b[addr]; !ok && len(*s) < maxGone {
			if *s == nil {
				*s = make(addrSet)
			}
			(*s)[addr] = struct{}{}
		}
	}
}

// lookUpLocal reports whether the kernel delivers packets to addr locally.
// Like a rule with `fib daddr type local`, it looks the address up in the
// routing tables (RTM_GETROUTE), so an address with only a local route is
// local, too.
func (c *Conn) lookUpLocal(addr netip.Addr) (local bool, err error) {
	err = request(c.routes, unix.RTM_GETROUTE, unix.NLM_F_ACK, familyOf(addr), func(w *nfnetlink.Writer) {
		// struct rtmsg is 8 bytes longer than struct nfgenmsg, and starts with
		// the family and the length of the prefix.
		w.Buf[len(w.Buf)-3] = uint8(addr.BitLen())
		w.Buf = append(w.Buf, make([]byte, 8)...)
		w.Addr(unix.RTA_DST, unix.RTA_DST, addr)
	}, func(msg nfnetlink.Message) error {
		const typeAt = nfnetlink.MessageHeaderLen + 7 // rtm_type
		local = len(msg) > typeAt && msg[typeAt] == unix.RTN_LOCAL
		return nil
	})
	switch {
	case errors.Is(err, unix.ENETUNREACH), errors.Is(err, unix.EHOSTUNREACH), errors.Is(err, unix.EACCES),
		errors.Is(err, unix.EINVAL): // no route exists
		return false, nil
	case err != nil:
		return false, fmt.Errorf("look up the route to %v: %w", addr, err)
	}
	return local, nil
}

// localAddrs caches for the duration of one pass which addresses are local.
type localAddrs struct {
	conn  *Conn
	known map[netip.Addr]bool
	err   error // of the lookup that failed
}

// maxLocalAddrs bounds the memory for known addresses.
const maxLocalAddrs = 4096

// contains looks up each address once. If a lookup fails, the pass is
// retried later. For the rest of the pass, the addresses that are not known
// yet count as not local, so their flows stay. Further lookups would fail,
// too, and each can take as long as answerTimeout.
func (l *localAddrs) contains(addr netip.Addr) bool {
	local, ok := l.known[addr]
	if ok || l.err != nil {
		return local
	}
	if local, l.err = l.conn.lookUpLocal(addr); l.err != nil {
		return false
	}
	if l.known == nil || len(l.known) >= maxLocalAddrs {
		l.known = make(map[netip.Addr]bool)
	}
	l.known[addr] = local
	return local
}

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
