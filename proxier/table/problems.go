package table

import (
	"cmp"
	"slices"
	"strings"

	"github.com/nftproxy/nftproxy/proxier/cluster"
)

// maxListed is the number of problems of a kind that Stats lists. It is called
// after each sync, so the lists must be short.
const maxListed = 50

// RefusedPort is a service port that cannot be updated.
type RefusedPort struct {
	Name   string `json:"servicePort"` // namespace/name:port
	Reason string `json:"reason"`
}

// WaitingPort is a service port that waits for a frontend of another one, or of
// this node.
type WaitingPort struct {
	Name     string `json:"servicePort"` // namespace/name:port
	Frontend string `json:"frontend"`    // ruleset.Frontend.String
	Owner    string `json:"owner"`       // claims.holder
}

// count returns the number of refused service ports.
func (r refusals) count() (n int) {
	for _, refused := range r {
		if refused.refused {
			n++
		}
	}
	return n
}

// ReducedService is a Service that exceeds a budget.
type ReducedService struct {
	cluster.ServiceName
	How string `json:"how"` // a predicate: exceeds …
}

// listReduced returns the Services that exceed a budget, sorted, and nil if
// there are many.
func (d *desired) listReduced() (all []ReducedService) {
	if len(d.budgets.reduced) > maxListed {
		return nil
	}
	for s := range d.budgets.reduced {
		all = append(all, ReducedService{s.name, d.reduction(s)})
	}
	slices.SortFunc(all, func(a, b ReducedService) int { return a.Compare(b.ServiceName) })
	return all
}

// list returns the refused service ports, sorted, and nil if there are many.
func (r refusals) list() (all []RefusedPort) {
	if r.count() > maxListed {
		return nil
	}
	for p, refused := range r {
		if refused.refused {
			all = append(all, RefusedPort{p.name(), refused.why})
		}
	}
	slices.SortFunc(all, func(a, b RefusedPort) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// contested returns the number of frontends that a service port claims without
// owning them.
func (c *claims) contested() int {
	n := len(c.waiting)
	for f := range c.taken() {
		if len(c.waiting[f]) == 0 {
			n++
		}
	}
	return n
}

// list returns the service ports that wait for a frontend, sorted, and nil if
// there are many.
func (c *claims) list() (all []WaitingPort) {
	for f, waiting := range c.waiting {
		if len(all)+len(waiting) > maxListed {
			return nil
		}
		for _, w := range waiting {
			all = append(all, WaitingPort{w.port.name(), f.String(), c.holder(f).text})
		}
	}
	for f, o := range c.taken() {
		if len(all) == maxListed {
			return nil
		}
		all = append(all, WaitingPort{o.port.name(), f.String(), c.holder(f).text})
	}
	slices.SortFunc(all, func(a, b WaitingPort) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(a.Frontend, b.Frontend))
	})
	return all
}
