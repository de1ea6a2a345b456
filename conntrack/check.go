package conntrack

import (
	"net/netip"

	"golang.org/x/sys/unix"
)

// check is the work of a pass. Its size is bounded, however many changes are
// recorded while the kernel refuses to list flows.
type check struct {
	changes int // number of recorded changes
	// changed selects the flows to changed frontends, and attempts those
	// attempts to connect to changed frontends, which the pass lists.
	changed, attempts byFamily[selections]
	// gone are the frontends that are no longer served. former are the
	// addresses that NodePorts no longer listen on.
	gone   map[key]struct{}
	former addrSet
	// removals are the endpoints whose connections the pass deletes.
	removals map[key][]*removal
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

func (c *check) setGone(frontend key) {
	if c.gone == nil {
		c.gone = make(map[key]struct{})
	}
	if len(c.gone) < maxGone {
		c.gone[frontend] = struct{}{}
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
	for frontend := range o.gone {
		c.setGone(frontend)
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
