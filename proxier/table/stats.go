package table

import (
	"cmp"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
	"github.com/nftproxy/nftproxy/proxier/table/keep"
)

// Stats contains present numbers of a Table, and counters since its creation.
type Stats struct {
	Counters `json:"-"`

	// Services is the number of Services of the family. ServicePorts is the
	// number of service ports in the kernel, Endpoints the number of their
	// endpoints for traffic with policy Cluster.
	Services     int `json:"services"`
	ServicePorts int `json:"servicePorts"`
	Endpoints    int `json:"endpoints"`
	// Rows is the number of rows in the kernel now, by set. It does not contain
	// the affinity sets, which packets fill.
	Rows map[string]int `json:"rows"`
	// Rewrites counts the syncs that wrote everything, Repairs the repairs of
	// changes by other programs, by kind of the damage.
	Rewrites int                     `json:"rewrites"`
	Repairs  map[keep.DamageKind]int `json:"repairs"`
	// Outage is nil unless the table is damaged and not repaired at once.
	Outage *keep.Outage `json:"outage,omitempty"`
	// Refused is the number of service ports that keep their last rules, or
	// reject connections, because they cannot be written as they are wanted.
	// RefusedPorts lists them unless there are many.
	Refused      int           `json:"refused"`
	RefusedPorts []RefusedPort `json:"refusals,omitempty"`
	// Contested is the number of frontends that several service ports claim
	// now, or a service port and this node. WaitingPorts lists those that do
	// not own them unless there are many.
	Contested    int           `json:"contested"`
	WaitingPorts []WaitingPort `json:"conflicts,omitempty"`
	// Reduced is the number of Services that exceed a budget now.
	// ReducedServices lists them unless there are many.
	Reduced         int              `json:"reduced,omitempty"`
	ReducedServices []ReducedService `json:"reductions,omitempty"`
	// Ejected is the number of endpoints that service ports avoid because they
	// answer nothing or are unhealthy. Ejections lists some of them. AllUsed
	// lists service ports that use their ejected endpoints because these are
	// more than half, NoneHealthy those without a healthy endpoint.
	Ejected   int            `json:"ejected,omitempty"`
	Ejections []PortEjection `json:"ejections,omitempty"`
	AllUsed   []string       `json:"allUsed,omitempty"` // namespace/name:port
	// NoneHealthy has the same form.
	NoneHealthy []string `json:"noneHealthy,omitempty"`
	// Waiting is the number of namespaces whose changes wait for their turns,
	// WaitingNamespaces lists those that wait longest.
	Waiting           int                `json:"waiting,omitempty"`
	WaitingNamespaces []WaitingNamespace `json:"waitingNamespaces,omitempty"`
}

// Counters are numbers of Stats for metrics only.
type Counters struct {
	keep.Totals
	// Conflicts counts how often a service port lost a frontend to another one,
	// Refusals how often a service port could not be served, in most cases
	// because the kernel refused a row or chain.
	Conflicts, Refusals int
	// NoLocalEndpoints counts the service ports that have endpoints, but none
	// on this node, although their policy is Local.
	NoLocalEndpoints NoLocalEndpoints
}

// Stats returns the present counters and numbers.
func (t *Table) Stats() Stats {
	s, kept := t.stats, t.keeper.Stats()
	s.Totals, s.Rewrites, s.Rows, s.Repairs = kept.Totals, kept.Rewrites, kept.Rows, kept.Repairs
	s.Outage, s.Services = kept.Outage, t.desired.served
	s.Refused, s.RefusedPorts = listRefused(t.keeper.Failing())
	s.Contested, s.WaitingPorts = t.desired.claims.contested(), t.desired.claims.list()
	s.Reduced, s.ReducedServices = len(t.desired.budgets.reduced), t.desired.listReduced()
	s.Ejected, s.Ejections, s.AllUsed, s.NoneHealthy = t.desired.listEjections()
	s.Waiting, s.WaitingNamespaces = listWaits(t.keeper.Waits())
	return s
}

// count counts a plan that the kernel has n times. A nil plan is not counted.
func (s *Stats) count(p *ruleset.Plan, n int) {
	if p != nil {
		s.ServicePorts += n
		s.Endpoints += n * len(p.Cluster)
		if p.Ejected != nil {
			s.Endpoints += n * len(p.Ejected.Cluster)
		}
		s.NoLocalEndpoints.add(p, n)
	}
}

// NoLocalEndpoints counts service ports without an endpoint on this node, by
// the traffic policy that is Local.
type NoLocalEndpoints struct{ Internal, External int }

// add counts a plan n times. A nil plan is not counted.
func (c *NoLocalEndpoints) add(p *ruleset.Plan, n int) {
	if p == nil || p.Reach(cluster.PolicyLocal).Reason != ruleset.NoLocalEndpoints {
		return
	}
	internal, external := 0, 0
	for _, f := range p.Frontends {
		switch {
		case f.Policy != cluster.PolicyLocal:
		case f.IsClusterIP():
			internal = n
		default:
			external = n
		}
	}
	c.Internal += internal
	c.External += external
}

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

// ReducedService is a Service that exceeds a budget.
type ReducedService struct {
	cluster.ServiceName
	How string `json:"how"` // a predicate: exceeds …
}

// PortEjection is the ejection of an endpoint of a service port.
type PortEjection struct {
	Name string `json:"servicePort"` // namespace/name:port
	cluster.Ejection
}

// WaitingNamespace is a namespace whose changes wait for their turns.
type WaitingNamespace struct {
	Namespace string `json:"namespace"`
	// Since is when the change that waits longest was made, ServicePorts the
	// number of service ports that wait.
	Since        time.Time `json:"since"`
	ServicePorts int       `json:"servicePorts"`
}

// listWaits returns the number of waiting namespaces, and those that wait
// longest.
func listWaits(waits []keep.Wait) (n int, all []WaitingNamespace) {
	slices.SortFunc(waits, func(a, b keep.Wait) int { return a.Since.Compare(b.Since) })
	for _, w := range waits[:min(len(waits), maxListed)] {
		all = append(all, WaitingNamespace{w.First.(*portState).service.name.Namespace, w.Since, w.Owners})
	}
	return len(waits), all
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

// listRefused returns the number of refused service ports, and the service
// ports, sorted, unless there are many.
func listRefused(failing iter.Seq[keep.Owner]) (n int, all []RefusedPort) {
	for o := range failing {
		why, refused := o.Kept().Refused()
		if !refused {
			continue
		}
		if n++; n <= maxListed {
			all = append(all, RefusedPort{o.String(), why})
		}
	}
	if n > maxListed {
		return n, nil
	}
	slices.SortFunc(all, func(a, b RefusedPort) int { return strings.Compare(a.Name, b.Name) })
	return n, all
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
			all = append(all, WaitingPort{w.port.String(), f.String(), c.holder(f).text})
		}
	}
	for f, o := range c.taken() {
		if len(all) == maxListed {
			return nil
		}
		all = append(all, WaitingPort{o.port.String(), f.String(), c.holder(f).text})
	}
	slices.SortFunc(all, func(a, b WaitingPort) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(a.Frontend, b.Frontend))
	})
	return all
}
