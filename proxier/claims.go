package proxier

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// claims says which service port has a frontend that several ask for: that of the oldest Service, of equally old ones
// the first by namespace, name and port. The others wait, and the next one has it when the owner goes.
type claims struct {
	owners  map[frontend]*portState
	waiting map[frontend][]*portState
}

func newClaims() claims {
	return claims{owners: make(map[frontend]*portState), waiting: make(map[frontend][]*portState)}
}

// claim asks for a frontend. It returns the service port that loses it, or does not get it; nil if the frontend was free.
func (c *claims) claim(f frontend, p *portState) (loser *portState) {
	owner := c.owners[f]
	switch {
	case owner == nil || owner == p:
		c.owners[f] = p
		return nil
	case p.compare(owner) < 0:
		c.owners[f] = p
		c.waiting[f] = append(c.waiting[f], owner)
		return owner
	}
	c.waiting[f] = append(c.waiting[f], p)
	return p
}

// release gives a frontend back, or stops to wait for it. It returns the service port that has it now instead, if one was waiting.
func (c *claims) release(f frontend, p *portState) (heir *portState) {
	waiting := c.waiting[f]
	if c.owners[f] != p {
		c.setWaiting(f, slices.DeleteFunc(waiting, func(w *portState) bool { return w == p }))
		return nil
	}
	if len(waiting) == 0 {
		delete(c.owners, f)
		return nil
	}
	heir = slices.MinFunc(waiting, (*portState).compare)
	c.owners[f] = heir
	c.setWaiting(f, slices.DeleteFunc(waiting, func(w *portState) bool { return w == heir }))
	return heir
}

func (c *claims) setWaiting(f frontend, waiting []*portState) {
	if len(waiting) == 0 {
		delete(c.waiting, f)
		return
	}
	c.waiting[f] = waiting
}

// compare orders service ports by who has the better claim.
func (p *portState) compare(o *portState) int {
	return cmp.Or(p.created.Compare(o.created),
		strings.Compare(p.service.name.Namespace, o.service.name.Namespace),
		strings.Compare(p.service.name.Name, o.service.name.Name),
		strings.Compare(p.port.Name, o.port.Name),
		int(p.port.Protocol)-int(o.port.Protocol))
}

// conflict is a service port that asks for a frontend that another one has.
type conflict struct {
	frontend
	loser *portState
}

// reportConflicts tells the owners of the service ports that lost a frontend since the last sync, and have not got it back by
// now: what was told one after the other is one change. Each is told once for each time that it loses.
func (b *Backend) reportConflicts() {
	for _, c := range b.lost {
		if _, told := b.conflicts[c]; told || !slices.Contains(b.claims.waiting[c.frontend], c.loser) {
			continue
		}
		b.conflicts[c] = struct{}{}
		b.stats.Conflicts++
		owner := b.claims.owners[c.frontend]
		if !b.speaksFor(c, owner) {
			continue
		}
		recordEvent(b.config.Events, serviceEvent(c.loser.service.spec, ReasonAddressConflict, fmt.Sprintf(
			"Service port %s gets no traffic on %s: it belongs to Service port %s", c.loser.name(), c.frontend, owner.name())))
	}
	b.lost = nil
}

// speaksFor says whether it is on the backend of this family to tell of a conflict: a conflict about a NodePort is one of each family that
// both Services have, and is told once.
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
