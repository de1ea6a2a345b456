package conntrack

import (
	"net/netip"

	"golang.org/x/sys/unix"
)

// check is the work of a pass. Its size is bounded, however many changes are
// recorded while the kernel refuses to list flows.
type check struct {
	changes int // number of recorded changes
	byFamily[familyCheck]
}

// familyCheck is the part of a check that concerns one family.
type familyCheck struct {
	// changed selects the flows to changed frontends, which the pass lists.
	changed selections
	// gone are the frontends that are no longer served. former are the
	// addresses that NodePorts no longer listen on.
	gone   map[netip.AddrPort]struct{}
	former addrSet
	// removals are the endpoints whose connections the pass deletes.
	removals map[endpointKey][]*removal
	// missed are the sorted TCP frontends whose lost flows the pass deletes.
	missed []netip.AddrPort
}

// maxGone is the maximum number of frontends, and of addresses, that a check
// records as gone (6 MB). Flows to further ones stay until they time out.
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

func (c *check) add(frontend netip.AddrPort) {
	c.changes++
	family := familyOf(frontend.Addr())
	one := Selection{Family: family, Protocol: unix.IPPROTO_UDP, Port: frontend.Port()}
	if !frontend.Addr().IsUnspecified() {
		one.Addr = frontend.Addr()
	}
	c.of(family).changed.add(one)
}

func (c *check) addGone(frontend netip.AddrPort) {
	c.add(frontend)
	c.of(familyOf(frontend.Addr())).addGone(frontend)
}

func (c *check) addRemoval(r *removal) {
	c.changes++
	c.of(familyOf(r.Endpoint.Addr())).addRemoval(r)
}

func (f *familyCheck) addRemoval(r *removal) {
	if f.removals == nil {
		f.removals = make(map[endpointKey][]*removal)
	}
	key := endpointKey{r.Protocol, r.Endpoint}
	f.removals[key] = append(f.removals[key], r)
}

func (f *familyCheck) addGone(frontend netip.AddrPort) {
	if f.gone == nil {
		f.gone = make(map[netip.AddrPort]struct{})
	}
	if len(f.gone) < maxGone {
		f.gone[frontend] = struct{}{}
	}
}

// merge adds the work of another check, which it does not modify.
func (c *check) merge(o check) {
	c.changes += o.changes
	c.ipv4.merge(o.ipv4)
	c.ipv6.merge(o.ipv6)
}

func (f *familyCheck) merge(o familyCheck) {
	f.changed.merge(o.changed)
	for frontend := range o.gone {
		f.addGone(frontend)
	}
	f.former.addMissing(o.former, nil)
	for _, removals := range o.removals {
		for _, r := range removals {
			f.addRemoval(r)
		}
	}
	if len(f.missed) == 0 {
		f.missed = o.missed
	}
}

// isGone reports whether a destination is no longer served: its VIP is gone,
// or its NodePort is gone, or NodePorts no longer listen on its address.
func (f *familyCheck) isGone(dst, nodePort netip.AddrPort, isNodePort bool, nodeAddrs addrSet,
	isLocal func(netip.Addr) bool) bool {
	if _, gone := f.gone[dst]; gone {
		return true
	}
	_, gone := f.gone[nodePort]
	return (gone || isNodePort) && f.former.contains(dst.Addr(), isLocal) ||
		gone && nodeAddrs.contains(dst.Addr(), isLocal)
}
