package ruleset

import "github.com/nftproxy/nftproxy/proxier/cluster"

// list is a list of the endpoints of a service port.
type list struct {
	targets []Target
	table   []uint16 // nil if each target has one row
	balance cluster.Balance
}

// list returns the endpoints for traffic with a policy.
func (p *Plan) list(policy cluster.Policy) list {
	if policy == cluster.PolicyLocal {
		return list{p.Local, p.LocalTable, p.Service.Balance}
	}
	return list{p.Cluster, p.ClusterTable, p.Service.Balance}
}

// draw returns the way in which chains draw a row.
func (l list) draw() draw {
	switch {
	case l.table == nil:
		return random
	case l.balance == cluster.BalanceSourceHash:
		return sourceHash
	case l.balance == cluster.BalanceSourcePortHash:
		return sourcePortHash
	case isAscending(l.table):
		return random
	}
	return weighted
}

// isAscending reports whether the rows are in the order of their targets, each
// of which has one row at most.
func isAscending(table []uint16) bool {
	for i := 1; i < len(table); i++ {
		if table[i] <= table[i-1] {
			return false
		}
	}
	return true
}

// rows returns the number of rows from which chains draw.
func (l list) rows() int {
	if l.table != nil {
		return len(l.table)
	}
	return len(l.targets)
}

// indexed returns the targets of the rows.
func (l list) indexed() []Target {
	if l.table == nil {
		return l.targets
	}
	out := make([]Target, len(l.table))
	for i, t := range l.table {
		out[i] = l.targets[t]
	}
	return out
}

// reachable returns the number of targets that have a weight above 0, or no
// need for one.
func (l list) reachable() (n int) {
	if l.table == nil {
		return len(l.targets)
	}
	for _, t := range l.targets {
		if t.Weight.Int() > 0 {
			n++
		}
	}
	return n
}

// Rows returns the targets of the rows from which traffic with a policy draws.
func (p *Plan) Rows(policy cluster.Policy) []Target { return p.list(policy).indexed() }
