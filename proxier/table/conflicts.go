package table

import (
	"fmt"
	"maps"
	"slices"

	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
)

// conflicts are the frontends that a Service claims without owning them, by the
// name of the Service that they belong to. The proxy itself has no name.
type conflicts map[cluster.ServiceName]conflict

// conflict is a number of frontends, and one of them as an example.
type conflict struct {
	n int
	ruleset.Frontend
	loser, holder string
}

// conflictsOf returns the conflicts of a Service.
func (t *Table) conflictsOf(s *serviceState) conflicts {
	var found conflicts
	c := &t.desired.claims
	for _, p := range s.ports {
		for _, w := range p.wants {
			if c.owner(w.Frontend) == p {
				continue
			}
			by, name := c.holder(w.Frontend), cluster.ServiceName{}
			if by.service != nil {
				name = by.service.name
			}
			if w.IsNodePort() && !t.recordsNodePort(s, by.service) {
				continue
			}
			e, known := found[name]
			if !known {
				e = conflict{Frontend: w.Frontend, loser: p.name(), holder: by.text}
			}
			if e.n++; found == nil {
				found = make(conflicts)
			}
			found[name] = e
		}
	}
	return found
}

// reportConflicts records an event for each pair of a Service and what holds
// frontends that it claims, if there are more such frontends than when it was
// last reported.
func (t *Table) reportConflicts() {
	c := &t.desired.claims
	for _, s := range slices.SortedFunc(maps.Keys(c.changed), compareServices) {
		found, before := t.conflictsOf(s), c.reported[s]
		if len(found) == 0 {
			delete(c.reported, s)
			continue
		}
		c.reported[s] = found
		for _, by := range slices.SortedFunc(maps.Keys(found), cluster.ServiceName.Compare) {
			if more := found[by].n - before[by].n; more > 0 {
				t.stats.Conflicts += more
				t.record(cluster.NewEvent(s.spec, cluster.ReasonAddressConflict, found[by].note()))
			}
		}
	}
	c.changed = make(map[*serviceState]struct{})
}

func (c conflict) note() string {
	note := fmt.Sprintf("Service port %s gets no traffic on %s: it belongs to %s", c.loser, c.Frontend, c.holder)
	if c.n > 1 {
		note += fmt.Sprintf(" (%d frontends of the Service in all)", c.n)
	}
	return note
}

// recordsNodePort reports whether this table, rather than that of another
// family, records an event about a NodePort that another Service owns. The
// conflict exists in each family that both Services have, and is recorded once.
func (t *Table) recordsNodePort(loser, owner *serviceState) bool {
	for _, f := range loser.spec.Families {
		if slices.Contains(owner.spec.Families, f) {
			return f == t.Family()
		}
	}
	return true
}
