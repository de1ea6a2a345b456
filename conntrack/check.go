package conntrack

import (
	"net/netip"

	"golang.org/x/sys/unix"
)

// check is the work of a pass. Its size is bounded, however many changes are
// recorded while the kernel refuses to list flows.
type check struct {
	changes int // number of recorded changes
	// changed selects the flows to changed frontends, which the pass lists.
	changed byFamily[selections]
	// gone are the frontends that are no longer served. former are the
	// addresses that NodePorts no longer listen on.
	gone   map[netip.AddrPort]struct{}
	former addrSet
	// removals are the endpoints whose connections the pass deletes.
	removals map[endpointKey][]*removal
	// missed are the sorted TCP frontends whose lost flows the pass deletes.
	missed byFamily[[]netip.AddrPort]
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
	c.changed.of(family).add(one)
}

func (c *check) setGone(frontend netip.AddrPort) {
	if c.gone == nil {
		c.gone = make(map[netip.AddrPort]struct{})
	}
	if len(c.gone) < maxGone {
		c.gone[frontend] = struct{}{}
	}
}

func (c *check) addRemovals(key endpointKey, removals ...*removal) {
	if c.removals == nil {
		c.removals = make(map[endpointKey][]*removal)
	}
	c.removals[key] = append(c.removals[key], removals...)
}

// merge adds the work of another check, which it does not modify.
func (c *check) merge(o check) {
	c.changes += o.changes
	for _, family := range []Family{IPv4, IPv6} {
		c.changed.of(family).merge(*o.changed.of(family))
		if missed := c.missed.of(family); len(*missed) == 0 {
			*missed = *o.missed.of(family)
		}
	}
	for frontend := range o.gone {
		c.setGone(frontend)
	}
	c.former.addMissing(o.former, nil)
	for key, removals := range o.removals {
		c.addRemovals(key, removals...)
	}
}

// isGone reports whether a destination is no longer served: its VIP is gone,
// or its NodePort is gone, or NodePorts no longer listen on its address.
func (c *check) isGone(dst, nodePort netip.AddrPort, isNodePort bool, nodeAddrs addrSet,
	isLocal func(netip.Addr) bool) bool {
	if _, gone := c.gone[dst]; gone {
		return true
	}
	_, gone := c.gone[nodePort]
	return (gone || isNodePort) && c.former.contains(dst.Addr(), isLocal) ||
		gone && nodeAddrs.contains(dst.Addr(), isLocal)
}
