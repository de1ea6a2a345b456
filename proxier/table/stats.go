package table

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
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
	Rewrites int                `json:"rewrites"`
	Repairs  map[DamageKind]int `json:"repairs"`
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
}

// Counters are numbers of Stats for metrics only.
type Counters struct {
	// Transactions counts transactions that the kernel carried out.
	Transactions int
	// RewriteCauses counts Stats.Rewrites by cause.
	RewriteCauses map[RewriteCause]int
	// RowsWritten and BytesWritten count the rows added and deleted, and the
	// netlink bytes, of these transactions.
	RowsWritten, BytesWritten int
	// CommitTime is the time that the kernel took for them.
	CommitTime time.Duration
	// CleanupFailures counts failures to delete chains that are no longer used.
	CleanupFailures int
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
	s := t.stats
	s.RewriteCauses = maps.Clone(t.stats.RewriteCauses)
	s.Repairs = maps.Clone(t.observed.repairs.count)
	s.Services, s.ServicePorts, s.Endpoints = t.desired.served, len(t.committed.plans), t.committed.endpoints
	s.Refused, s.RefusedPorts = t.refusals.list()
	s.Contested, s.WaitingPorts = t.desired.claims.contested(), t.desired.claims.list()
	s.Reduced, s.ReducedServices = len(t.desired.budgets.reduced), t.desired.listReduced()
	s.NoLocalEndpoints = t.committed.noLocal
	s.Rows = maps.Clone(t.committed.rows)
	return s
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

// list returns the number of refused service ports, and the service ports,
// sorted, unless there are many.
func (r refusals) list() (n int, all []RefusedPort) {
	for p, refused := range r {
		if !refused.refused {
			continue
		}
		if n++; n <= maxListed {
			all = append(all, RefusedPort{p.name(), refused.why})
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

// Observer is notified of syncs and commits of each Table, by the goroutine
// that uses the Table.
type Observer interface {
	// Committed is called after each transaction that changed Services or this
	// node. It must not keep or modify the Commit.
	Committed(*Commit)
	// Synced is called at the end of each sync, also of one that repairs the
	// table.
	Synced(SyncResult)
}

// Commit describes a transaction that the kernel carried out.
type Commit struct {
	Family nft.Family
	// Whole reports whether the transaction wrote everything. Then Changes
	// contains all service ports, and Services all Services.
	Whole bool
	// Changes are the service ports that changed.
	Changes []Change
	// Services are the Services that changed.
	Services []ServiceChange
	// NodePortAddrs are the addresses on which NodePorts listen. The
	// unspecified address stands for all. NodePortAddrsChanged reports whether
	// they changed.
	NodePortAddrs        []netip.Addr
	NodePortAddrsChanged bool
}

// Change is the change of a service port. Before is nil if the kernel had
// nothing of it, After is nil if the kernel has nothing of it now.
type Change struct{ Before, After *ruleset.Plan }

// ServiceChange is the change of a Service.
type ServiceChange struct {
	Name cluster.ServiceName
	// Service is nil if the Service was deleted.
	Service *cluster.Service
	// ReadyEndpoints is the number of ready endpoints on this node. It is
	// counted for Services with a health-check NodePort only.
	ReadyEndpoints int
}

// SyncResult describes a sync that ended.
type SyncResult struct {
	Family nft.Family
	// Cause is why the sync ran: changes, periodic, or the reason to write the
	// whole table.
	Cause    string
	Duration time.Duration
	// Full reports whether the sync wrote, or tried to write, the whole table.
	Full bool
	Err  error
}

// notify notifies the observer of a committed transaction, after which these
// Services have no change that is not written.
func (t *Table) notify(tx *transaction, done []*serviceState, nodePortAddrsBefore []netip.Addr) {
	if t.config.Observer == nil {
		return
	}
	c := &Commit{
		Family: t.Family(), Whole: tx.whole, NodePortAddrs: t.committed.nodePortAddrs,
		NodePortAddrsChanged: !slices.Equal(nodePortAddrsBefore, t.committed.nodePortAddrs),
		Changes:              make([]Change, 0, len(tx.changes)),
		Services:             make([]ServiceChange, 0, len(done)),
	}
	for _, change := range tx.changes {
		c.Changes = append(c.Changes, Change{change.before, change.next})
	}
	for _, s := range done {
		change := ServiceChange{Name: s.name, Service: s.spec}
		if s.spec != nil && s.spec.HealthCheckNodePort != 0 {
			change.ReadyEndpoints = t.readyEndpoints(s)
		}
		c.Services = append(c.Services, change)
	}
	t.config.Observer.Committed(c)
}

// readyEndpoints returns the number of endpoints for the health check of a
// Service. If a service port is not written as it is wanted, and the rules lead
// clients outside the cluster to no endpoint on this node, it is 0.
func (t *Table) readyEndpoints(s *serviceState) int {
	refused, served := false, false
	for _, p := range s.ports {
		refused = refused || t.refusals[p].instead != theWanted
		plan := t.committed.plans[p]
		served = served || plan.Reach(cluster.PolicyLocal).Endpoints > 0 &&
			slices.ContainsFunc(plan.Frontends, func(f ruleset.ServedFrontend) bool { return !f.IsClusterIP() })
	}
	if refused && !served {
		return 0
	}
	return s.readyOn(t.desired.node)
}

// readyOn returns the number of ready endpoints on a node. Endpoints in a
// service CIDR, or with weight 0, do not count, because the rules do not use
// them. As in kube-proxy, endpoints of an EndpointSlice without ports do not
// count either.
func (s *serviceState) readyOn(node *cluster.Node) int {
	ready := make(map[netip.Addr]struct{})
	for _, e := range s.endpoints {
		if e.Ready && e.Node == node.Name && len(e.Ports) > 0 && !node.IsServiceAddr(e.Addr) &&
			!ruleset.IsWeightless(s.spec, e.Weight) {
			ready[e.Addr] = struct{}{}
		}
	}
	return len(ready)
}
