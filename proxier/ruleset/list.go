package ruleset

import "github.com/nftproxy/nftproxy/proxier/cluster"

// list is a list of the endpoints of a service port.
type list struct {
	targets []Target
	slots   []uint16 // indexes of targets, nil if each target has one row
	service *cluster.Service
	once    bool // Plan.Once
}

// list returns the endpoints for traffic with a policy.
func (p *Plan) list(policy cluster.Policy) list {
	if policy == cluster.PolicyLocal {
		return list{p.Local, p.LocalSlots, p.Service, p.Once}
	}
	return list{p.Cluster, p.ClusterSlots, p.Service, p.Once}
}

// draw returns the way in which chains draw a row.
func (l list) draw() draw {
	once := l.once && l.rows() > 1
	switch {
	case l.slots != nil && l.service.Balance == cluster.BalanceSourceHash:
		return sourceHash
	case l.slots != nil && l.service.Balance == cluster.BalanceSourcePortHash:
		return sourcePortHash
	case l.slots == nil || isAscending(l.slots):
		if once {
			return randomOnce
		}
		return random
	case once:
		return weightedOnce
	}
	return weighted
}

// isAscending reports whether the slots are in the order of their targets, each
// of which has one slot at most.
func isAscending(slots []uint16) bool {
	for i := 1; i < len(slots); i++ {
		if slots[i] <= slots[i-1] {
			return false
		}
	}
	return true
}

// rows returns the number of rows from which chains draw.
func (l list) rows() int {
	if l.slots != nil {
		return len(l.slots)
	}
	return len(l.targets)
}

// indexed returns the targets of the rows.
func (l list) indexed() []Target {
	if l.slots == nil {
		return l.targets
	}
	out := make([]Target, len(l.slots))
	for i, t := range l.slots {
		out[i] = l.targets[t]
	}
	return out
}

// reachable returns the number of targets that have a weight above 0, or no
// need for one.
func (l list) reachable() (n int) {
	if l.slots == nil {
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
