package keep

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/klog/v2"
)

// The cost of a change does not depend on the number of owners. An update asks
// for the contents of the owners that were touched, compares their rows before
// and after, and writes the difference. Nothing about other owners is read:
// rows that several owners have are counted (sharedRows), chains on demand stay
// until a rewrite, so that nothing counts their users, and the numbers of rows
// are kept by set.
//
// Only these walk all owners: a rewrite, a change of what the Source makes all
// contents from, such as the node, samplesOf if all samples of a set are gone,
// the scrubber, in steps, and Diff. BenchmarkChanges of package table measures
// changes beside 200, 10,000 and 50,000 Services.

// update writes owners in one transaction. Owners that the kernel refuses do
// not delay the others. held are those that can be held back together.
func (k *writer) update(owners, held []Owner) (err error) {
	isolate := false
	for range maxAttempts {
		tx := newTransaction(k.batch, k.source, k.have)
		unplanned := k.planOwners(tx, slices.Values(owners))
		if k.programChanged {
			tx.program = k.source.Program(k.have.uses)
			if len(tx.program.Sets) != len(k.have.program.Sets) {
				k.Distrust(RewriteNode, "the sets of the table change")
				return k.rewrite()
			}
		}
		k.refuseUnplanned(unplanned)
		k.resetBatch(isolate)
		tx.compare()
		if err = tx.write(noFlush); err == nil {
			err = k.commitGuarded()
		}
		if err == nil {
			k.programChanged = false
			return k.finish(tx)
		}
		switch k.afterAttempt(tx, phaseUpdate, err, isolate, held) {
		case stepAgain, stepHoldPart:
		case stepIsolate:
			isolate = true // to find out which owner has the refused row
		case stepRepair:
			return k.repaired(err)
		case stepDoubt:
			k.Distrust(RewriteFailure, "an update failed")
			return k.rewriteAfter(err)
		case stepRewrite:
			return k.rewriteAfter(err)
		default:
			return err
		}
	}
	return err
}

// finishHeld is called after an update that held back owners. It writes
// everything if that may help. Otherwise the error requests another sync.
// Deferred owners wait for their turns.
func (k *writer) finishHeld() error {
	var held []Owner
	now, rewrite, conflict := time.Now(), false, false
	for o := range k.failing {
		if f := o.Kept().fate(); f.waits() && !o.Kept().pending {
			held = append(held, o)
			conflict = conflict || f.conflict
			rewrite = rewrite || f.conflict || f.failures == maxFailures
		}
	}
	if len(held) == 0 {
		return nil
	}
	for _, o := range held {
		k.Touch(o)
	}
	first := slices.MinFunc(held, func(a, b Owner) int { return strings.Compare(a.String(), b.String()) })
	why := first.Kept().trouble.why
	err := fmt.Errorf("%d changes wait for another sync, first %s: %s", len(held), first, why)
	if !rewrite || conflict && k.repairs.wait(now) > 0 {
		return err
	}
	if conflict {
		k.countRepair(&Damage{DamagedRow, why}, now)
	}
	return k.rewriteAfter(err)
}

// rewriteAfter writes everything after an update failed. If that fails, too,
// the next sync is an update again.
func (k *writer) rewriteAfter(err error) error {
	klog.InfoS("Update failed; writing the whole table", "table", k.name(), "err", err)
	k.cause = RewriteFailure
	return k.rewrite()
}
