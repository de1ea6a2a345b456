package table

import (
	"maps"
	"time"

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
	s.Refused, s.RefusedPorts = t.refusals.count(), t.refusals.list()
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
	if p == nil || len(p.Cluster) == 0 || len(p.Local) > 0 {
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

// endpointsOf returns the number of endpoints of a plan for traffic with policy
// Cluster. A nil plan has none.
func endpointsOf(p *ruleset.Plan) int {
	if p == nil {
		return 0
	}
	return len(p.Cluster)
}
