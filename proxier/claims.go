package proxier

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// claims decides which service port has a frontend that several ask for. A
// ClusterIP beats a LoadBalancer IP, which beats an external IP; among equals the
// older Service wins, then the first by namespace, name and port. The others
// wait, and the best of them has the frontend when the owner goes.
type claims struct {
	owners  map[frontend]claim
	waiting map[frontend][]claim
}

// claim is a service port that asks for a frontend, and the kind of address that
// the frontend is for it.
type claim struct {
	port *portState
	kind frontendKind
}

func newClaims() claims {
	return claims{owners: make(map[frontend]claim), waiting: make(map[frontend][]claim)}
}

// owner returns the service port that has a frontend, nil if none has.
func (c *claims) owner(f frontend) *portState { return c.owners[f].port }

// claim asks for a frontend. It returns the service port that loses it, or does
// not get it; nil if the frontend was free.
func (c *claims) claim(f frontend, by claim) (loser *portState) {
	owner, taken := c.owners[f]
	switch {
	case !taken || owner.port == by.port:
		c.owners[f] = by
		return nil
	case by.compare(owner) < 0:
		c.owners[f] = by
		c.waiting[f] = append(c.waiting[f], owner)
		return owner.port
	}
	c.waiting[f] = append(c.waiting[f], by)
	return by.port
}

// release gives a frontend back, or stops waiting for it. It returns the service
// port that has it now instead, nil if none was waiting.
func (c *claims) release(f frontend, p *portState) (heir *portState) {
	waiting := c.waiting[f]
	if c.owner(f) != p {
		c.setWaiting(f, slices.DeleteFunc(waiting, func(w claim) bool { return w.port == p }))
		return nil
	}
	if len(waiting) == 0 {
		delete(c.owners, f)
		return nil
	}
	next := slices.MinFunc(waiting, claim.compare)
	c.owners[f] = next
	c.setWaiting(f, slices.DeleteFunc(waiting, func(w claim) bool { return w == next }))
	return next.port
}

func (c *claims) setWaiting(f frontend, waiting []claim) {
	if len(waiting) == 0 {
		delete(c.waiting, f)
		return
	}
	c.waiting[f] = waiting
}

// waits reports whether a service port waits for a frontend.
func (c *claims) waits(f frontend, p *portState) bool {
	return slices.ContainsFunc(c.waiting[f], func(w claim) bool { return w.port == p })
}

// compare orders claims to one frontend, the best first.
func (c claim) compare(o claim) int {
	p, q := c.port, o.port
	return cmp.Or(cmp.Compare(c.kind, o.kind),
		p.created.Compare(q.created),
		strings.Compare(p.service.name.Namespace, q.service.name.Namespace),
		strings.Compare(p.service.name.Name, q.service.name.Name),
		strings.Compare(p.port.Name, q.port.Name),
		cmp.Compare(p.port.Protocol, q.port.Protocol))
}

// conflict is a service port that asks for a frontend that another one has.
type conflict struct {
	frontend
	loser *portState
}

// reportConflicts records an event for each service port that lost a frontend
// since the last sync and has not got it back by now. Each loss is reported once.
func (b *Backend) reportConflicts() {
	for _, c := range b.lost {
		if _, reported := b.conflicts[c]; reported || !b.claims.waits(c.frontend, c.loser) {
			continue
		}
		b.conflicts[c] = struct{}{}
		b.stats.Conflicts++
		owner := b.claims.owner(c.frontend)
		if !b.speaksFor(c, owner) {
			continue
		}
		recordEvent(b.config.Events, serviceEvent(c.loser.service.spec, ReasonAddressConflict, fmt.Sprintf(
			"Service port %s gets no traffic on %s: it belongs to Service port %s", c.loser.name(), c.frontend, owner.name())))
	}
	b.lost = nil
}

// speaksFor reports whether the backend of this family reports a conflict. A
// conflict about a NodePort exists in each family that both Services have, and is
// reported once.
func (b *Backend) speaksFor(c conflict, owner *portState) bool {
	if c.addr.IsValid() {
		return true
	}
	for _, f := range c.loser.service.spec.Families {
		if slices.Contains(owner.service.spec.Families, f) {
			return f == b.layout.family
		}
	}
	return true
}
