package keep

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/klog/v2"
)

// The cost of a change does not depend on the number of owners: an update reads
// the owners that were touched, and nothing about others. What several owners
// share is counted when rows are committed: rows, the rows that need a chain on
// demand, and the rows of a set.
//
// Only rare work walks all owners, such as a rewrite, a change of the node, the
// verification after damage, Diff and, in steps, the scrubber. BenchmarkChanges
// of package table measures changes beside 200, 10,000 and 50,000 Services.

// update writes owners in one transaction. Owners that the kernel refuses do
// not delay the others.
func (k *Keeper) update(owners []Owner, of extent) (err error) {
	isolate := false
	for range maxAttempts {
		tx := newTransaction(k.link.batch, k.source, k.state.have)
		tx.reused = &k.buffers
		if of == heavyOwner && len(owners) == 1 {
			tx.most = k.limits.StageRows
		}
		unplanned := k.planOwners(tx, slices.Values(owners))
		if k.programChanged {
			tx.program = k.source.Program(k.state.have.uses)
			if len(tx.program.Sets) != len(k.state.have.program.Sets) {
				k.link.distrust(RewriteNode, "the sets of the table change")
				return k.rewrite()
			}
		}
		k.refuseUnplanned(unplanned)
		k.link.resetBatch(isolate)
		tx.compare()
		var committed bool
		if committed, err = k.commitChains(tx, isolate); committed && err != nil {
			return err // as after the update itself
		}
		if err == nil {
			err = tx.write(noFlush)
		}
		if err == nil {
			err = k.state.commitGuarded()
		}
		if err == nil {
			k.programChanged = false
			return k.state.finish(tx)
		}
		switch k.afterAttempt(tx, phaseUpdate, err, isolate, owners, of) {
		case stepAgain, stepHoldAll:
		case stepBisect:
			return k.bisect(owners, err)
		case stepIsolate:
			isolate = true // to find out which owner has the refused row
		case stepRepair:
			d, _ := errors.AsType[*Damage](err)
			whole, errRepair := k.repair(d)
			if whole {
				return k.repairWhole(d)
			}
			if errRepair != nil {
				return errRepair
			}
		case stepRewrite:
			return k.rewriteAfter(err)
		default:
			return err
		}
	}
	return err
}

// bisect writes owners of an update that failed without an owner to blame, in
// halves, until it has found the one that is refused. If the kernel refuses
// both halves for want of memory, it is no owner's fault.
func (k *Keeper) bisect(owners []Owner, err error) error {
	rings := k.rings(owners)
	if len(rings) == 1 {
		for _, o := range owners {
			k.decide(blame{o, failureOf(err), err}, phaseUpdate)
		}
		return k.update(owners, oneOwner)
	}
	halves := [2][]Owner{slices.Concat(rings[:len(rings)/2]...), slices.Concat(rings[len(rings)/2:]...)}
	var failed [2]error
	for i, half := range halves {
		if failed[i] = k.update(half, partOfTrial); failed[i] != nil && !isUntagged(failed[i]) {
			return failed[i]
		}
	}
	if failed[0] != nil && failed[1] != nil && failureOf(failed[0]) == failureTransient {
		k.failures++
		return failed[0]
	}
	for i, half := range halves {
		if failed[i] == nil {
			continue
		}
		if err := k.bisect(half, failed[i]); err != nil {
			return err
		}
	}
	return nil
}

// updateInParts writes what changed, in parts, until everything is written or
// Limits.Time has passed. It writes at least one part.
func (k *Keeper) updateInParts() error {
	start, rewrites := time.Now(), k.link.totals.Rewrites
	turns := k.queue.turns(start, k.limits.Burst, k.cost)
	for {
		if err := k.take(k.nextPart(&turns)); err != nil {
			return err
		}
		if k.link.totals.Rewrites != rewrites { // everything is written
			return nil
		}
		if len(turns) == 0 || time.Since(start) >= k.limits.Time {
			break
		}
	}
	k.failures, k.unsynced = 0, false
	return k.finishHeld()
}

// take writes the changes of a part and charges its CPU time, which does not
// depend on other programs, without the time of a rewrite that follows. What
// was not written waits again.
func (k *Keeper) take(p part) error {
	of := extentOf(p.owners)
	if p.heavy {
		of = heavyOwner
	}
	rewriting := k.rewriting
	used, err := ThreadTimeOf(func() error { return k.update(p.owners, of) })
	k.charge(p, max(0, used-(k.rewriting-rewriting)))
	for _, o := range p.owners {
		kept := o.Kept()
		kept.taken = false
		if kept.pending && !kept.queued {
			kept.queued = true
			k.queue.add(o)
		}
	}
	k.queue.compact()
	return err
}

// extentOf returns the extent of an update of light owners.
func extentOf(owners []Owner) extent {
	switch {
	case len(owners) == 0:
		return noOwner
	case len(owners) == 1:
		return oneOwner
	}
	return someOwners
}

// commitChains commits the chains on demand that the rows of an update need and
// that do not exist, before the update. If both were one transaction, and it
// took effect while a packet is in the base chain, the packet could find the
// new row, and see no rules in the new chain. committed reports whether there
// were such chains and the kernel accepted them.
func (k *Keeper) commitChains(update *transaction, isolate bool) (committed bool, err error) {
	tx := newTransaction(k.link.batch, k.source, k.state.have)
	for _, r := range update.added {
		tx.account = update.accountOf(r.tag)
		tx.addChainOf(r)
	}
	if len(tx.demand) == 0 {
		return false, nil
	}
	if err := k.state.commitGuarded(); err != nil {
		return false, err
	}
	err = k.state.finish(tx)
	k.link.resetBatch(isolate)
	update.to = k.link.batch // finish may have replaced it
	return true, err
}

// finishHeld is called after an update that may have held back owners. It
// solves conflicts: the kernel has other rows or chains than were committed.
func (k *Keeper) finishHeld() error {
	held := 0
	var first Owner
	var conflicts []Owner
	for o := range k.state.failing {
		kept := o.Kept()
		if !kept.trouble.waits() || kept.pending {
			continue
		}
		held++
		if first == nil || o.String() < first.String() {
			first = o
		}
		if kept.trouble.conflict {
			conflicts = append(conflicts, o)
		}
	}
	if held == 0 {
		return nil
	}
	klog.V(2).InfoS("Changes are held back", "table", k.link.name(), "count", held,
		"first", first, "why", first.Kept().trouble.why)
	if len(conflicts) == 0 || max(k.repairs.wait(time.Now(), k.limits), k.repairs.waitRows(time.Now())) > 0 {
		return nil
	}
	slices.SortFunc(conflicts, func(a, b Owner) int { return strings.Compare(a.String(), b.String()) })
	return k.solveConflicts(conflicts)
}

// solveConflicts repairs the rows of owners that are held back because of
// conflicts, and writes the owners again. If nothing was damaged, everything is
// written.
func (k *Keeper) solveConflicts(owners []Owner) error {
	first := owners[0]
	why := first.Kept().trouble.why
	found, err := k.repairOwners(owners)
	switch _, damaged := errors.AsType[*Damage](err); {
	case err != nil && !damaged:
		return err
	case found:
		for _, o := range owners {
			o.Kept().trouble.instead, o.Kept().trouble.conflict = theWanted, false
			k.Touch(o)
		}
		return k.updateInParts()
	}
	k.countRepair(&Damage{DamagedRow, why}, time.Now())
	return k.rewriteAfter(fmt.Errorf("%s is held back: %s", first, why))
}

// rewriteAfter writes everything after an update failed. If that fails, too,
// the next sync is an update again.
func (k *Keeper) rewriteAfter(err error) error {
	klog.InfoS("Update failed; writing the whole table", "table", k.link.name(), "err", err)
	k.link.cause, k.link.why = RewriteFailure, err.Error()
	return k.rewrite()
}
