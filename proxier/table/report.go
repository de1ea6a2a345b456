package table

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/nftproxy/nftproxy/proxier/cluster"
)

// reporter records events about what changed in a desired state.
type reporter struct {
	desired *desired
	record  func(cluster.Event)
}

// reduced records an event for each Service that is reduced since the
// last sync.
func (r *reporter) reduced() {
	d := r.desired
	for s := range d.budgets.reduced {
		if s.reduced.reported {
			continue
		}
		s.reduced.reported = true
		r.record(cluster.NewEvent(s.spec, cluster.ReasonBudget, fmt.Sprintf("Service %s %s", s.name, d.reduction(s))))
	}
}

// conflictsOf returns the conflicts of a Service.
func (r *reporter) conflictsOf(s *serviceState) conflicts {
	var found conflicts
	c := &r.desired.claims
	ports := s.ports
	if _, taken := c.checkTaken(s); taken {
		ports = append(slices.Clip(ports), s.check)
	}
	for _, p := range ports {
		for _, w := range p.wants {
			if c.owner(w.Frontend) == p {
				continue
			}
			by, name := c.holder(w.Frontend), cluster.ServiceName{}
			if by.service != nil {
				name = by.service.name
			}
			if w.IsNodePort() && !r.recordsNodePort(s, by.service) {
				continue
			}
			e, known := found[name]
			if !known {
				e = conflict{Frontend: w.Frontend, loser: p, holder: by.text}
			}
			if e.n++; found == nil {
				found = make(conflicts)
			}
			found[name] = e
		}
	}
	return found
}

// conflicts records an event for each pair of a Service and what holds
// frontends that it claims, if there are more such frontends than when it was
// last reported, and returns their number.
func (r *reporter) conflicts() (more int) {
	c := &r.desired.claims
	for _, s := range slices.SortedFunc(maps.Keys(c.changed), compareServices) {
		found, before := r.conflictsOf(s), c.reported[s]
		if len(found) == 0 {
			delete(c.reported, s)
			continue
		}
		c.reported[s] = found
		for _, by := range slices.SortedFunc(maps.Keys(found), cluster.ServiceName.Compare) {
			if n := found[by].n - before[by].n; n > 0 {
				more += n
				r.record(cluster.NewEvent(s.spec, cluster.ReasonAddressConflict, found[by].note()))
			}
		}
	}
	c.changed = make(map[*serviceState]struct{})
	return more
}

func (c conflict) note() string {
	loser := "Service port " + c.loser.String()
	if c.loser.check {
		loser = "The health check of " + c.loser.service.name.String()
	}
	note := fmt.Sprintf("%s gets no traffic on %s: it belongs to %s", loser, c.Frontend, c.holder)
	if c.n > 1 {
		note += fmt.Sprintf(" (%d frontends of the Service in all)", c.n)
	}
	return note
}

// recordsNodePort reports whether this table, rather than the table of another
// family, records an event about a NodePort that something else owns. The
// conflict exists in each family that both Services have, and is recorded once.
func (r *reporter) recordsNodePort(loser, owner *serviceState) bool {
	if owner == nil { // the proxy itself
		return loser.spec.Families[0] == r.desired.family
	}
	for _, f := range loser.spec.Families {
		if slices.Contains(owner.spec.Families, f) {
			return f == r.desired.family
		}
	}
	return true
}

// invalidEndpoints records an event for each changed Service that has
// endpoints in a service CIDR, once for each set of such endpoints.
func (r *reporter) invalidEndpoints() {
	for _, s := range r.desired.freshServices() {
		var invalid []string
		for _, e := range s.endpoints {
			if r.desired.node.IsServiceAddr(e.Addr) {
				invalid = append(invalid, e.Addr.String())
			}
		}
		note := ""
		if len(invalid) > 0 {
			note = fmt.Sprintf("Endpoints of Service %s are ignored, because they are in a service CIDR: %s",
				s.name, summary(invalid))
		}
		if note != s.invalidEndpoints && note != "" && s.spec != nil {
			r.record(cluster.NewEvent(s.spec, cluster.ReasonInvalid, note))
		}
		s.invalidEndpoints = note
	}
}

// summary joins the first values of a list.
func summary(values []string) string {
	const limit = 5
	if len(values) <= limit {
		return strings.Join(values, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(values[:limit], ", "), len(values)-limit)
}
