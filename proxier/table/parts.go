package table

import (
	"slices"
	"time"

	"github.com/nftproxy/nftproxy/proxier/ruleset"
)

// A user can create Services that take long to write: many frontends, source
// ranges, or endpoints with session affinity. They must not delay others.
// Therefore a sync writes parts, each in a transaction: first all light service
// ports, then the heavy ones, one at a time. After some time it leaves the rest
// to the next sync, which begins with the light ones again.
//
// A service port is written by one transaction, so packets see its old or its
// new state. Service ports between which a row moves are in one part.

// limits limit the parts of updates. Tests change them.
type limits struct {
	// partCost is the cost of a part of light service ports, heavyCost the cost
	// above which a service port is heavy.
	partCost, heavyCost int
	// time is the time after which an update begins no second heavy part.
	time time.Duration
	// burst is the CPU time that the heavy parts of a Service may take in a
	// row. Then they take 1/paceShare of a core.
	burst time.Duration
}

func defaultLimits() limits {
	return limits{partCost: 20_000, heavyCost: 4096, time: 50 * time.Millisecond, burst: time.Second}
}

const paceShare = 5

// part is the content of a transaction.
type part struct {
	ports []*portState
	cost  int
	heavy bool
}

// pace measures the heavy parts of a Service. debt is the CPU time that they
// took until a time, less the share that they may take.
type pace struct {
	debt time.Duration
	at   time.Time
}

// wait returns how long the next heavy part has to wait.
func (p *pace) wait(now time.Time, burst time.Duration) time.Duration {
	return max(0, p.debt-now.Sub(p.at)/paceShare-burst) * paceShare
}

// add records a heavy part that ended now.
func (p *pace) add(now time.Time, took time.Duration) {
	p.debt = max(0, p.debt-now.Sub(p.at)/paceShare) + took
	p.at = now
}

// updateInParts writes what changed since the last sync. Heavy service ports
// that have to wait stay dirty, and their Services are deferred.
func (t *Table) updateInParts() error {
	start, rewrites, heavy := time.Now(), t.stats.Rewrites, false
	for _, part := range t.parts() {
		if part.heavy && (heavy && time.Since(start) > t.limits.time || t.mustWait(part)) {
			continue
		}
		heavy = heavy || part.heavy
		if err := t.take(part); err != nil {
			return err
		}
		if t.stats.Rewrites != rewrites { // everything is written
			return nil
		}
	}
	t.failures = 0
	for s := range t.desired.dirty {
		s.deferred = true
	}
	return t.finishHeld()
}

// take writes the changes of a part. It measures a heavy part by the CPU time
// of the thread, which does not depend on other programs.
func (t *Table) take(part part) error {
	t.part = part
	if !part.heavy {
		return t.update()
	}
	used, err := threadTimeOf(t.update)
	if err != nil {
		return err
	}
	p, now := part.ports[0], time.Now()
	p.written = now
	p.service.pace.add(now, used)
	return nil
}

// mustWait reports whether a part has to wait because earlier parts of its
// Service took long.
func (t *Table) mustWait(part part) bool {
	s := part.ports[0].service
	others := slices.ContainsFunc(part.ports, func(p *portState) bool { return p.service != s })
	return !others && s.pace.wait(time.Now(), t.limits.burst) > 0
}

// Deferred reports whether a change of a heavy service port was deferred and
// can be written now. Then a Sync is due.
func (t *Table) Deferred() bool {
	now := time.Now()
	for s := range t.desired.dirty {
		if s.deferred && s.pace.wait(now, t.limits.burst) == 0 {
			return true
		}
	}
	return false
}

// parts returns the parts of an update. The first one is light. It is empty if
// only this node changed.
func (t *Table) parts() []part {
	parts, heavy := make([]part, 1), []part(nil)
	for _, group := range t.pendingGroups() {
		last := &parts[len(parts)-1]
		switch {
		case group.heavy:
			heavy = append(heavy, group)
		case len(last.ports) > 0 && last.cost+group.cost > t.limits.partCost:
			parts = append(parts, group)
		default:
			last.ports, last.cost = append(last.ports, group.ports...), last.cost+group.cost
		}
	}
	slices.SortStableFunc(heavy, func(a, b part) int { return a.ports[0].written.Compare(b.ports[0].written) })
	return append(parts, heavy...)
}

// pendingGroups returns the service ports whose changes are not written yet, in
// groups between which no row moves.
func (t *Table) pendingGroups() []part {
	var groups []part
	total := 0
	for _, s := range t.desired.dirtyServices() {
		for _, p := range s.ports {
			if p.pending {
				cost := t.cost(p)
				groups = append(groups, part{[]*portState{p}, cost, cost > t.limits.heavyCost})
				total += cost
			}
		}
	}
	if total <= min(t.limits.partCost, t.limits.heavyCost) {
		return groups // one part has all of them
	}
	return t.joinMoved(groups)
}

// joinMoved joins groups of one service port between which frontends move.
func (t *Table) joinMoved(groups []part) []part {
	had := make(map[ruleset.Frontend]int) // the group whose rows the kernel has
	for i, g := range groups {
		if plan := t.committed.plans[g.ports[0]]; plan != nil {
			for _, f := range plan.Frontends {
				had[f.Frontend] = i
			}
		}
	}
	leaders := make([]int, len(groups))
	for i := range leaders {
		leaders[i] = i
	}
	leader := func(i int) int {
		for leaders[i] != i {
			leaders[i] = leaders[leaders[i]]
			i = leaders[i]
		}
		return i
	}
	for i, g := range groups {
		for _, f := range t.desired.owned(g.ports[0]) {
			if from, ok := had[f.Frontend]; ok {
				leaders[leader(i)] = leader(from)
			}
		}
	}
	var joined []part
	at := make(map[int]int) // positions in joined, by leader
	for i, g := range groups {
		n, ok := at[leader(i)]
		if !ok {
			at[leader(i)], joined = len(joined), append(joined, g)
			continue
		}
		to := &joined[n]
		to.ports, to.cost, to.heavy = append(to.ports, g.ports...), to.cost+g.cost, to.heavy || g.heavy
	}
	return joined
}

// cost returns the approximate number of rows that take as long to write as a
// service port, before or after its change.
func (t *Table) cost(p *portState) int {
	var next int
	if svc := p.service.spec; svc != nil && !p.removed {
		plan := ruleset.Plan{
			Service: svc, Frontends: p.wants, Sources: svc.SourceRanges, Slots: t.config.Rules.Slots(svc),
		}
		next = plan.Cost(len(p.service.endpoints), p.service.weighted)
	}
	before := t.committed.plans[p]
	if before == nil {
		return next
	}
	return max(next, before.Cost(len(before.Cluster)+len(before.Local), before.HasWeights()))
}
