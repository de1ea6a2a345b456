package keep

import (
	"errors"
	"fmt"
	"maps"

	"k8s.io/klog/v2"

	"github.com/nftproxy/nftproxy/nft"
)

// rowBytes is the size of a row in a batch with its part of the message, for
// each row of Source.CountRows. That counts up to twice the rows, as if each
// endpoint were on this node.
const rowBytes = 45

// rewrite writes everything. If it fails, the next sync begins with the wanted
// contents again: what the failures decided was not committed.
func (k *writer) rewrite() error {
	k.retry(true)
	used, err := ThreadTimeOf(k.rewriteAgain)
	k.rewriting += used
	k.unsynced = err != nil
	if err != nil {
		for o := range k.failing {
			k.Touch(o)
		}
	}
	k.queue.compact()
	return err
}

// rewriteAgain tries to write everything until it succeeds, or until a failure
// ends the sync.
func (k *writer) rewriteAgain() (err error) {
	isolate := false
	for range maxAttempts {
		var tx *transaction
		if tx, err = k.adopt(isolate); tx == nil && err == nil {
			tx, err = k.tryRewrite(isolate)
		}
		if err == nil {
			k.failures = 0
			k.Rewrites++
			k.RewriteCauses[k.cause]++
			k.programChanged = false
			if k.isVerified() { // no other program committed meanwhile
				k.scrubbed = k.seen
			}
			return k.finish(tx)
		}
		switch k.afterAttempt(tx, phaseRewrite, err, isolate, nil, noOwner) {
		case stepAgain:
		case stepIsolate:
			isolate = true // to find out which owner has the refused row
		default:
			return err
		}
	}
	return err
}

// tryRewrite writes everything, with a substitute for what was refused. If
// isolate is true, rows of different owners are in different messages. The
// error is nft.ErrGeneration if another program replaced the table meanwhile.
func (k *writer) tryRewrite(isolate bool) (*transaction, error) {
	tx := newTransaction(k.batch, k.source, newCommitted())
	tx.whole = true
	tx.program = k.source.Program(tx.uses)
	program := tx.program // without the sets that rows need
	found, err := k.inspect(program)
	if err != nil {
		return tx, err
	}
	unplanned := k.planOwners(tx, k.source.Owners(true))
	klog.V(2).InfoS("Rewriting", "table", k.name(), "found", found.state, "owners", len(tx.changes))
	k.resetBatch(isolate)
	if found.handle != 0 && found.state != tableOurs {
		k.batch.DeleteTable()
	}
	k.batch.AddTable(program.Comment)
	if found.state == tableOurs {
		k.empty(program, found)
		tx.found, tx.counted = found.objects, maps.Clone(found.counted)
	}
	if found.state != tableUnused {
		k.batch.Grow(k.source.CountRows() * rowBytes)
	}
	tx.compare()
	err = tx.write(func() error { return k.flushCold(&found, isolate) })
	var copies []*nft.Chain
	if found.state == tableForeign {
		copies = takeoverChains(program)
		tx.writeChains(copies...)
		has := func(set string) bool { return found.has(object{kindSet, set}) }
		for _, r := range k.source.Inherit(maps.Keys(tx.sets), has) {
			tx.to.AddRow(r)
		}
	}
	if err == nil {
		k.refuseUnplanned(unplanned)
		err = k.commitOver(program, found)
	}
	if _, refused := errors.AsType[*nft.CommitError](err); refused {
		if errHandle := k.checkHandle(found); errHandle != nil {
			return tx, fmt.Errorf("%w (%v)", errHandle, err)
		}
	}
	if err != nil {
		return tx, err
	}
	k.doubt = ""
	k.leftovers = make(leftovers)
	if found.state == tableOurs {
		for _, o := range found.others {
			k.leftovers.add(o.kind, o.name)
		}
	}
	for _, c := range copies {
		k.leftovers.add(kindChain, c.Name)
	}
	return tx, nil
}

// empty deletes the rules and rows of a table of ours. The sets that packets
// fill, and the sets whose rows count, keep their elements. What is not part of
// the program is deleted by the next transaction: before Linux 6.2 the kernel
// counts references until the end of the transaction.
//
// Other sets are flushed, which loses no packet: the old rules find the new
// rows while the transaction takes effect.
func (k *writer) empty(program *nft.Table, found inspection) {
	k.deleteBases(found)
	for _, c := range program.Chains { // also base chains: other programs may have added rules
		k.batch.AddChain(c)
		k.batch.FlushChain(c.Name)
	}
	flush := make(map[string]bool)
	for _, s := range program.Sets {
		flush[s.Name] = !s.Counts // see keepCounted
	}
	for _, s := range k.source.OnDemand() {
		flush[s.Name] = !s.Dynamic
	}
	for _, o := range found.others {
		if o.kind == kindChain {
			k.batch.FlushChain(o.name)
		}
	}
	for o := range found.objects {
		if o.kind == kindSet && flush[o.name] {
			k.batch.FlushSet(o.name)
		}
	}
}

// deleteBases deletes base chains of other programs in a table of ours.
func (k *writer) deleteBases(found inspection) {
	for _, name := range found.bases {
		klog.InfoS("Deleting a base chain of another program", "table", k.name(), "chain", name)
		k.deleteChain(name)
	}
}

// flushCold commits a large batch to a table that no packet uses yet.
func (k *writer) flushCold(found *inspection, isolate bool) error {
	if found.state != tableUnused || k.batch.Len() < k.limits.ColdBytes {
		return nil
	}
	err := k.commitUnless(func() error { return k.checkHandle(*found) })
	k.resetBatch(isolate)
	if err != nil || found.begun {
		return err
	}
	seen := k.seen
	now, err := k.readHandle()
	if err == nil && k.seen != seen {
		err = nft.ErrGeneration // the table may belong to another program already
	}
	found.begun, found.handle = true, now
	if k.doubt == "" {
		k.Distrust(k.cause, "a write of the whole table was interrupted")
	}
	return err
}

// checkHandle returns nft.ErrGeneration if the table in the kernel is another
// one than found.
func (s *state) checkHandle(found inspection) error {
	now, err := s.readHandle()
	if err == nil && now != found.handle {
		err = fmt.Errorf("table %s was replaced: %w", s.name(), nft.ErrGeneration)
	}
	return err
}

// readHandle returns the handle of the table in the kernel, 0 if there is none.
func (s *state) readHandle() (handle uint64, err error) {
	err = s.read(func() (uint32, error) {
		now, err := s.kernel.Generation()
		if err != nil {
			return 0, err
		}
		found, _, err := s.kernel.FindTable(s.table)
		handle = found.Handle
		return now, err
	})
	return handle, err
}

// commitOver commits a batch that replaces what was found. If another program
// committed meanwhile but did not change what was found, the batch is still
// valid. If another program committed between several transactions, the table
// is verified later.
func (s *state) commitOver(program *nft.Table, found inspection) error {
	err := s.commitUnless(func() error {
		now, err := s.inspect(program)
		if err == nil && (now.state != found.state || now.handle != found.handle ||
			found.state != tableUnused && !now.equal(found)) {
			err = nft.ErrGeneration
		}
		return err
	})
	if err == nil && (!found.begun || s.seen == found.seen) {
		s.verified = s.seen
	}
	return err
}
