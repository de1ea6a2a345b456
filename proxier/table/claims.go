package table

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/nftproxy/nftproxy/proxier/ruleset"
)

// claims decides which service port owns a frontend that several claim. A
// ClusterIP has priority over a LoadBalancer IP, and that over an external IP.
// Among equal kinds the older Service wins, then the first by namespace, name
// and port. The other service ports wait. When the owner releases the frontend,
// the best of them becomes the owner. An external IP or a LoadBalancer IP that
// is an address of this node can be taken by a NodePort (see nodeClaims).
type claims struct {
	node    nodeClaims
	owners  map[ruleset.Frontend]claim
	waiting map[ruleset.Frontend][]claim
	// changed are the Services whose conflicts may have changed since they were
	// last reported. reported are the conflicts of Services then.
	changed  map[*serviceState]struct{}
	reported map[*serviceState]conflicts
}

// claim is the claim of a service port to a frontend. kind is the kind of the
// address for this service port.
type claim struct {
	port *portState
	kind ruleset.AddressKind
}

// marker marks a Service as dirty.
type marker func(*serviceState)

func newClaims(own []netip.AddrPort) claims {
	return claims{
		node:     newNodeClaims(own),
		owners:   make(map[ruleset.Frontend]claim),
		waiting:  make(map[ruleset.Frontend][]claim),
		changed:  make(map[*serviceState]struct{}),
		reported: make(map[*serviceState]conflicts),
	}
}

// owner returns the service port that owns a frontend, nil if none does.
func (c *claims) owner(f ruleset.Frontend) *portState {
	o := c.owners[f]
	if _, taken := c.takenByNode(f, o.kind); taken {
		return nil
	}
	return o.port
}

// holder returns what a frontend belongs to that a service port claims.
func (c *claims) holder(f ruleset.Frontend) holder {
	o := c.owners[f]
	if by, taken := c.takenByNode(f, o.kind); taken {
		return by
	}
	return holder{o.port.service, o.port.name()}
}

// change marks a Service whose frontends have another owner than before.
func (c *claims) change(s *serviceState, mark marker) {
	c.changed[s] = struct{}{}
	mark(s)
}

// add adds a claim to a frontend.
func (c *claims) add(f ruleset.Frontend, by claim, mark marker) {
	owner, owned := c.owners[f]
	switch {
	case !owned:
		c.owners[f] = by
		c.addToNode(f, by.kind, mark)
		return
	case owner.port == by.port:
		c.owners[f] = by
		return
	}
	last := by
	if by.compare(owner) < 0 {
		c.owners[f], last = by, owner
	}
	c.waiting[f] = append(c.waiting[f], last)
	c.change(last.port.service, mark)
}

// release removes the claim of a service port to a frontend. If others wait for
// it, the best one becomes the owner.
func (c *claims) release(f ruleset.Frontend, p *portState, mark marker) {
	waiting := c.waiting[f]
	c.changed[p.service] = struct{}{}
	if c.owners[f].port != p {
		c.setWaiting(f, slices.DeleteFunc(waiting, func(w claim) bool { return w.port == p }))
		return
	}
	if len(waiting) == 0 {
		delete(c.owners, f)
		c.deleteFromNode(f, mark)
		return
	}
	heir := slices.MinFunc(waiting, claim.compare)
	c.owners[f] = heir
	c.setWaiting(f, slices.DeleteFunc(waiting, func(w claim) bool { return w == heir }))
	c.change(heir.port.service, mark)
}

func (c *claims) setWaiting(f ruleset.Frontend, waiting []claim) {
	if len(waiting) == 0 {
		delete(c.waiting, f)
		return
	}
	c.waiting[f] = waiting
}

// compare orders claims to one frontend. The best comes first.
func (c claim) compare(o claim) int {
	return cmp.Or(cmp.Compare(c.kind, o.kind), c.port.created.Compare(o.port.created), comparePorts(c.port, o.port))
}
