package table

import (
	"maps"
	"slices"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
)

// update writes the changes of one part, in one transaction. Service ports that
// the kernel refuses do not delay the others.
func (t *Table) update() (err error) {
	isolate := false
	for range maxAttempts {
		tx, ok := t.planUpdate()
		if !ok {
			t.doubt(rewriteNode, "the sets of the table change")
			return t.rewrite()
		}
		t.refuseUnplanned(tx)
		t.resetBatch(isolate)
		tx.writeUpdate(&t.ids)
		if err = t.commitGuarded(); err == nil {
			return t.updated(tx)
		}
		switch t.afterAttempt(phaseUpdate, err, isolate) {
		case stepAgain, stepHoldPart:
		case stepIsolate:
			isolate = true // to find out which service port has the refused row
		case stepRepair:
			return t.repaired(err)
		case stepDoubt:
			t.doubt(rewriteFailure, "an update failed")
			return t.rewriteAfter(err)
		case stepRewrite:
			return t.rewriteAfter(err)
		default:
			return err
		}
	}
	return err
}

// updated records a transaction that was committed.
func (t *Table) updated(tx *transaction) error {
	t.remember(tx)
	if err := t.observe(tx); err != nil {
		return err
	}
	return t.deleteUnused()
}

// planUpdate returns a transaction with the plans of the service ports of a
// part. ok is false if an update cannot make the change.
func (t *Table) planUpdate() (tx *transaction, ok bool) {
	tx = t.begin(t.committed)
	t.ids.forgetOld()
	for _, p := range t.part.ports {
		tx.changes = append(tx.changes, t.plan(p))
	}
	if t.desired.nodeChanged {
		tx.program = t.rules.MakeProgram(t.desired.node, t.committed.sources(t.rules, nil)...)
		ok := len(tx.program.Table.Sets) == len(t.committed.program.Sets)
		return tx, ok
	}
	return tx, true
}

// plan returns the change of a service port.
func (t *Table) plan(p *portState) change {
	c := change{port: p, before: t.committed.plans[p]}
	c.next, c.err = t.desiredPlan(p, &t.ids)
	return c
}

// desiredPlan returns the plan of a service port, with ids of session affinity
// by an allocator, or without if it is nil. The plan is nil if the kernel
// should have nothing of the service port. The error is the reason why the
// wanted plan cannot be written.
func (t *Table) desiredPlan(p *portState, ids *affinityIDs) (plan *ruleset.Plan, err error) {
	before, r := t.committed.plans[p], t.refusals[p]
	var wanted *ruleset.Plan
	if !p.removed && p.service.spec != nil {
		wanted, err = t.rules.MakePlan(t.planInput(p))
	}
	switch {
	case r.instead == theSame:
		return before, nil // committed, so it is not modified
	case r.instead == theNothing, r.instead == theLast && before == nil && !r.refused:
		return nil, nil
	case r.instead == theLast:
		plan, err = ruleset.LastGood(before, wanted), nil
	case err != nil:
		plan = ruleset.LastGood(before, wanted)
	default:
		plan = wanted
	}
	if ids != nil {
		ids.assign(before, plan)
	}
	return plan, err
}

// planInput returns the input for the plan of a service port, whose Service has
// a spec.
func (t *Table) planInput(p *portState) *ruleset.PlanInput {
	t.desired.mergeEndpoints()
	in := &ruleset.PlanInput{
		Node:      t.desired.node,
		Service:   p.service.spec,
		Port:      p.port,
		Endpoints: p.service.endpoints,
		Frontends: t.kept.without(t.desired.owned(p), p),
		Number:    p.tag,
		Before:    t.committed.plans[p],
	}
	if r := p.service.reduced; r != nil {
		in.Endpoints, in.Limits = r.endpoints, r.Limits(int(p.index))
	}
	return in
}

// writeUpdate writes the difference between what the kernel has and the
// transaction: first new and changed chains of service ports, then deleted
// rows, then added rows, so that a row can move from one service port to
// another, and then changed chains of the program.
func (tx *transaction) writeUpdate(ids *affinityIDs) {
	var removed, added []taggedRow
	if tx.program != nil {
		removed, added = tagRows(0, removed, added, tx.have.nodeRows, tx.program.Rows)
	}
	var before, after []nft.Row
	for _, c := range tx.changes {
		tx.to.Tag(c.port.tag)
		tx.writeChainChanges(c)
		before, after = tx.rules.Rows(before[:0], c.before), tx.rules.Rows(after[:0], c.next)
		removed, added = tagRows(c.port.tag, removed, added, before, after)
	}
	tx.to.Tag(0)
	tx.reserveIDs(ids.next)
	removed, added = tx.takeShared(removed, -1), tx.takeShared(added, 1)
	removedShared, addedShared := tx.shared.rows(tx.have.shared)
	for _, r := range append(removed, removedShared...) {
		tx.to.Tag(r.tag)
		tx.deleteRow(r.Row)
	}
	for _, r := range append(addedShared, added...) {
		tx.to.Tag(r.tag)
		tx.needBalancer(r.Row)
		tx.addRow(r.Row)
	}
	tx.to.Tag(0)
	tx.writeProgramChanges(tx.have.program)
}

// taggedRow is a row and the tag of its service port, 0 for a row about this
// node.
type taggedRow struct {
	nft.Row
	tag uint32
}

// tagRows appends the difference between two lists of rows.
func tagRows(tag uint32, removed, added []taggedRow, before, after []nft.Row) (r, a []taggedRow) {
	onlyBefore, onlyAfter := diffRows(before, after)
	for _, row := range onlyBefore {
		removed = append(removed, taggedRow{row, tag})
	}
	for _, row := range onlyAfter {
		added = append(added, taggedRow{row, tag})
	}
	return removed, added
}

// takeShared moves the rows of shared sets to tx.shared, and counts each of
// them n times. It returns the other rows.
func (tx *transaction) takeShared(rows []taggedRow, n int) []taggedRow {
	return slices.DeleteFunc(rows, func(r taggedRow) bool {
		if !tx.rules.IsShared(r.Set) {
			return false
		}
		tx.shared.add(r.Row, n, r.tag)
		return true
	})
}

// writeChainChanges writes the new and changed chains of a service port.
func (tx *transaction) writeChainChanges(c change) {
	after := tx.rules.Chains(c.next)
	if len(after) == 0 {
		return
	}
	tx.needAffinitySet(c.next)
	before := make(map[string]*nft.Chain)
	for _, chain := range tx.rules.Chains(c.before) {
		before[chain.Name] = chain
	}
	tx.writeChains(slices.DeleteFunc(after, func(chain *nft.Chain) bool {
		old := before[chain.Name]
		return old != nil && old.Equal(chain)
	})...)
}

// writeProgramChanges writes the changed chains of the program, if it changes
// or if rows use other sets of source ranges than before.
func (tx *transaction) writeProgramChanges(before *nft.Table) {
	changed := tx.program != nil
	for set, n := range tx.rows {
		has := tx.have.rows[set]
		changed = changed || ruleset.IsSourceSet(set) && (has == 0) != (has+n == 0)
	}
	if !changed {
		return
	}
	tx.program = tx.rules.MakeProgram(tx.node, tx.have.sources(tx.rules, tx.rows)...)
	for i, c := range tx.program.Table.Chains {
		if !c.Equal(before.Chains[i]) {
			tx.to.FlushChain(c.Name)
			tx.to.AddRules(c)
		}
	}
}

// diffRows returns the rows that are in before only, and those that are in
// after only. A row whose data differs is in both. Most rows are equal and have
// the same position, so only the others are looked up.
func diffRows(before, after []nft.Row) (removed, added []nft.Row) {
	var moved []nft.Row
	n := min(len(before), len(after))
	for i := range n {
		if before[i] != after[i] {
			removed, moved = append(removed, before[i]), append(moved, after[i])
		}
	}
	removed, moved = append(removed, before[n:]...), append(moved, after[n:]...)
	left := make(map[nft.Row]bool, len(removed))
	for _, r := range removed {
		left[r] = true
	}
	for _, r := range moved {
		if left[r] {
			delete(left, r)
		} else {
			added = append(added, r)
		}
	}
	return slices.DeleteFunc(removed, func(r nft.Row) bool { return !left[r] }), added
}

// remember records a committed transaction, and notifies the observer.
func (t *Table) remember(tx *transaction) {
	nodePortAddrsBefore := t.committed.nodePortAddrs
	t.unused.update(tx)
	if tx.whole {
		t.committed = tx.have
	}
	t.committed.apply(tx)
	if tx.program != nil {
		t.desired.nodeChanged = false
	}
	for _, c := range tx.changes {
		c.port.pending = false
	}
	done := slices.DeleteFunc(slices.Collect(maps.Keys(t.desired.dirty)), (*serviceState).isPending)
	t.notify(tx, done, nodePortAddrsBefore)
	for _, c := range tx.changes {
		t.ids.release(c.before, c.next)
		t.refusals.commit(c)
	}
	t.ids.forgetEarlier(t.refusals)
	for _, s := range done {
		delete(t.desired.dirty, s)
		t.desired.forget(s, t.committed)
	}
	if len(t.desired.dirty) == 0 {
		// A new map: iterating over an emptied one costs as much as
		// before.
		t.desired.dirty = make(map[*serviceState]struct{})
	}
}
