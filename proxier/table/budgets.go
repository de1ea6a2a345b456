package table

import (
	"fmt"
	"maps"

	"github.com/nftproxy/nftproxy/proxier/ruleset"
)

// budgets limit the rows of Services. The Services of a namespace that exceeds
// its budget get it in the order of their age and name. Each gets the rows that
// it needs until the budget is used up; the others are reduced to what is left.
type budgets struct {
	ruleset.Budgets
	config  *ruleset.Config
	reduced map[*serviceState]struct{} // Services with reduced
}

// maxPairs is the number of pairs of a service port and an endpoint up to which
// a Service that exceeds its budget is planned with all endpoints.
const maxPairs = 1 << 22

// budget returns the rows that a Service may have.
func (d *desired) budget(s *serviceState) int {
	if s.reduced != nil {
		return s.reduced.budget
	}
	return d.budgets.OfService()
}

// share returns the part of a Service that a budget covers.
func (d *desired) share(s *serviceState, budget int) ruleset.Share {
	share := ruleset.ShareOf(d.family, s.spec, s.endpoints, d.budgets.config.Slots(s.spec), budget)
	share.AllEndpoints += s.leftOut
	return share
}

// maxGrowths is the number of Services that get more of the budget of their
// namespace in a sync, so that a change makes few others change.
const maxGrowths = 16

// applyBudgets makes the limits of all Services follow the changes. It must be
// called before they are planned.
func (d *desired) applyBudgets() {
	changed := d.growing
	for s := range maps.Clone(d.fresh) {
		rows := 0
		if s.spec != nil {
			share := d.share(s, d.budgets.OfService())
			rows = share.Rows
			if s.reduced == nil || s.reduced.budget == d.budgets.OfService() {
				d.setShare(s, share, d.budgets.OfService())
			}
		}
		s.namespace.rows += rows - s.rows
		s.rows = rows
		changed[s.namespace] = struct{}{}
	}
	d.growing = make(map[*namespace]struct{})
	for n := range changed {
		over := n.rows > d.budgets.OfNamespace()
		if over || n.limited {
			d.shareBudget(n)
		}
		_, grows := d.growing[n]
		n.limited = over || grows
	}
}

// shareBudget gives each Service of a namespace its part of the budget. Only
// Services that changed, or whose part changes, are computed.
func (d *desired) shareBudget(n *namespace) {
	left, growths := d.budgets.OfNamespace(), 0
	for _, s := range n.byAge {
		budget := d.budgets.OfService()
		if s.rows > left {
			budget = left
		}
		if s.rows <= left && s.reduced == nil {
			left -= s.rows
			continue
		}
		if _, fresh := d.fresh[s]; s.reduced != nil && !fresh {
			grows := budget > s.reduced.budget
			if grows {
				growths++
			}
			if budget == s.reduced.budget || grows && growths > maxGrowths {
				left = max(0, left-s.reduced.Rows)
				continue
			}
		}
		share := d.share(s, budget)
		d.setShare(s, share, budget)
		left = max(0, left-share.Rows)
	}
	if growths > maxGrowths {
		d.growing[n] = struct{}{}
	}
}

// setShare limits a Service to a part of it. Its claims and plans follow.
func (d *desired) setShare(s *serviceState, share ruleset.Share, budget int) {
	before := ruleset.Share{Addresses: share.AllAddresses}
	if s.reduced != nil {
		before = s.reduced.Share
	}
	d.reduce(s, share, budget)
	if before.Addresses != share.Addresses {
		d.setPorts(s)
	}
	if s.reduced == nil && before.AllAddresses+before.AllEndpoints+before.AllRanges != 0 ||
		s.reduced != nil && before != share {
		d.markDirty(s)
	}
}

// reduce sets the part of a Service that its budget covers.
func (d *desired) reduce(s *serviceState, share ruleset.Share, budget int) {
	if share.Whole() {
		s.reduced = nil
		delete(d.budgets.reduced, s)
		return
	}
	r := &reduced{Share: share, budget: budget, endpoints: s.endpoints}
	if n := max(len(s.spec.Ports), 1); n*len(s.endpoints) > maxPairs {
		r.endpoints = ruleset.LimitEndpoints(s.endpoints, max(maxPairs/n, 1))
	}
	r.reported = s.reduced != nil && s.reduced.reported
	s.reduced, d.budgets.reduced[s] = r, struct{}{}
}

// reduction describes how a Service is reduced, as a predicate.
func (d *desired) reduction(s *serviceState) string {
	whose := fmt.Sprintf("its budget of %d rows", d.budgets.OfService())
	switch {
	case s.leftOut > 0 && s.reduced.Endpoints == len(s.endpoints):
		whose = fmt.Sprintf("the limit of %d endpoints", maxEndpoints)
	case s.reduced.budget < d.budgets.OfService():
		whose = fmt.Sprintf("the budget of its namespace, %d rows", d.budgets.OfNamespace())
	}
	return fmt.Sprintf("exceeds %s: it is served with %s", whose, s.reduced.Share)
}
