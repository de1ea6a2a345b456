package table

import (
	"maps"
	"time"

	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
)

// Stats contains counters of a Table since its creation, and present numbers.
type Stats struct {
	// Transactions counts transactions that the kernel carried out, Rewrites
	// the syncs that wrote everything.
	Transactions, Rewrites int
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
	// Repairs counts repairs of changes by other programs, by kind of the
	// damage.
	Repairs map[DamageKind]int

	// Refused is the number of service ports that are left out now.
	Refused int
	// Contested is the number of frontends that several service ports claim
	// now.
	Contested int
	// NoLocalEndpoints counts the service ports that have endpoints, but none
	// on this node, although their policy is Local.
	NoLocalEndpoints NoLocalEndpoints
	// Rows is the number of rows in the kernel now, by set. It does not contain
	// the affinity sets, which packets fill.
	Rows map[string]int
}

// Stats returns the present counters and numbers.
func (t *Table) Stats() Stats {
	s := t.stats
	s.Repairs = maps.Clone(t.observed.repairs.count)
	s.Refused = len(t.refusals)
	s.Contested = len(t.desired.claims.waiting)
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
