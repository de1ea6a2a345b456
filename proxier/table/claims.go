package table

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
)

// claims decides which service port owns a frontend that several claim. A
// ClusterIP has priority over a LoadBalancer IP, and that over an external IP.
// Among equal kinds the older Service wins, then the first by namespace, name
// and port. The other service ports wait. When the owner releases the frontend,
// the best of them becomes the owner.
type claims struct {
	owners  map[ruleset.Frontend]claim
	waiting map[ruleset.Frontend][]claim
	// lost are the conflicts since they were last reported, reported those that
	// an event was recorded for.
	lost     []conflict
	reported map[conflict]struct{}
}

// claim is the claim of a service port to a frontend. kind is the kind of the
// address for this service port.
type claim struct {
	port *portState
	kind ruleset.AddressKind
}

// conflict is a service port that claims a frontend that another one owns.
type conflict struct {
	ruleset.Frontend
	loser *portState
}

func newClaims() claims {
	return claims{
		owners:   make(map[ruleset.Frontend]claim),
		waiting:  make(map[ruleset.Frontend][]claim),
		reported: make(map[conflict]struct{}),
	}
}

// owner returns the service port that owns a frontend, nil if none does.
func (c *claims) owner(f ruleset.Frontend) *portState { return c.owners[f].port }

// add adds a claim to a frontend. It returns the service port that loses the
// frontend or does not get it, nil if there is no conflict.
func (c *claims) add(f ruleset.Frontend, by claim) (loser *portState) {
	owner, owned := c.owners[f]
	if !owned || owner.port == by.port {
		c.owners[f] = by
		return nil
	}
	last := by
	if by.compare(owner) < 0 {
		c.owners[f], last = by, owner
	}
	c.waiting[f] = append(c.waiting[f], last)
	c.lost = append(c.lost, conflict{f, last.port})
	return last.port
}

// release removes the claim of a service port to a frontend. It returns the
// service port that becomes the owner, nil if there is none.
func (c *claims) release(f ruleset.Frontend, p *portState) (heir *portState) {
	delete(c.reported, conflict{f, p})
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
	delete(c.reported, conflict{f, next.port})
	return next.port
}

func (c *claims) setWaiting(f ruleset.Frontend, waiting []claim) {
	if len(waiting) == 0 {
		delete(c.waiting, f)
		return
	}
	c.waiting[f] = waiting
}

// waits reports whether a service port waits for a frontend.
func (c *claims) waits(f ruleset.Frontend, p *portState) bool {
	return slices.ContainsFunc(c.waiting[f], func(w claim) bool { return w.port == p })
}

// compare orders claims to one frontend. The best comes first.
func (c claim) compare(o claim) int {
	return cmp.Or(cmp.Compare(c.kind, o.kind), c.port.created.Compare(o.port.created), comparePorts(c.port, o.port))
}

// takeConflicts returns the conflicts since the last call that still exist and
// were not returned before.
func (c *claims) takeConflicts() []conflict {
	var found []conflict
	for _, l := range c.lost {
		if _, reported := c.reported[l]; !reported && c.waits(l.Frontend, l.loser) {
			c.reported[l] = struct{}{}
			found = append(found, l)
		}
	}
	c.lost = nil
	return found
}

// reportConflicts records an event for each service port that lost a frontend
// since the last sync. Each loss is reported once.
func (t *Table) reportConflicts() {
	for _, c := range t.desired.claims.takeConflicts() {
		t.stats.Conflicts++
		owner := t.desired.claims.owner(c.Frontend)
		if !t.recordsConflict(c, owner) {
			continue
		}
		note := fmt.Sprintf("Service port %s gets no traffic on %s: it belongs to Service port %s",
			c.loser.name(), c.Frontend, owner.name())
		t.record(cluster.NewEvent(c.loser.service.spec, cluster.ReasonAddressConflict, note))
	}
}

// recordsConflict reports whether this table, rather than that of another
// family, records an event about a conflict. A conflict about a NodePort exists
// in each family that both Services have, and is recorded once.
func (t *Table) recordsConflict(c conflict, owner *portState) bool {
	if !c.IsNodePort() {
		return true
	}
	for _, f := range c.loser.service.spec.Families {
		if slices.Contains(owner.service.spec.Families, f) {
			return f == t.Family()
		}
	}
	return true
}
