package keep

import (
	"errors"
	"slices"

	"k8s.io/klog/v2"

	"github.com/nftproxy/nftproxy/nft"
)

// largeBatch is the size of a batch whose buffers are not kept: about 1,000
// rows.
const largeBatch = 64 << 10

// finish records a transaction that was committed: what the kernel has, which
// objects are unused, and how verification recognizes the table.
func (s *state) finish(tx *transaction) error {
	s.leftovers.update(tx)
	program := tx.program != tx.have.program
	tx.apply()
	if s.have = tx.have; tx.whole {
		s.damaged = nil
	}
	for _, c := range tx.changes {
		k := c.Owner.Kept()
		if k.trouble != nil {
			k.trouble.fate = k.trouble.committed()
		}
		if k.fate() == (fate{}) {
			s.Forget(c.Owner)
		}
	}
	isFirst := func(c Change) bool { return c.stage == stageFirst }
	changes := slices.DeleteFunc(slices.Clone(tx.changes), isFirst)
	s.source.Report(&Commit{Whole: tx.whole, Program: program, Changes: changes})
	if err := s.observe(tx, program); err != nil {
		return err
	}
	if tx.whole || s.batch.Len() > largeBatch {
		s.batch = nft.NewBatch(s.table) // releases its buffers
	}
	return s.deleteLeftovers()
}

// deleteLeftovers deletes chains, sets and objects that are no longer used. It
// leaves those that the kernel does not delete: they do no harm. It returns an
// error if the outcome of a commit is unknown.
func (s *state) deleteLeftovers() error {
	for range maxAttempts {
		all := s.leftovers.sorted()
		if len(all) == 0 {
			return nil
		}
		s.writeDeletions(all)
		err := s.commitGuarded()
		if err == nil {
			for _, o := range all {
				delete(s.rules, o.name)
				delete(s.leftovers, o)
			}
			return nil
		}
		klog.V(2).InfoS("Failed to delete unused chains and sets", "table", s.name(), "count", len(all), "err", err)
		s.CleanupFailures++
		if errors.Is(err, nft.ErrUnknownOutcome) {
			return err
		}
		if !s.leftovers.exclude(err) {
			break // they are tried again after the next sync
		}
	}
	return nil
}

// writeDeletions writes the deletion of objects to the batch.
func (s *state) writeDeletions(all []object) {
	s.batch.Reset()
	for _, o := range all {
		if o.kind == kindChain {
			s.batch.FlushChain(o.name)
		}
	}
	for _, o := range all {
		switch o.kind {
		case kindChain:
			s.batch.DeleteChain(o.name)
		case kindSet:
			s.batch.DeleteSet(o.name)
		case kindCounter:
			s.batch.DeleteCounter(o.name)
		case kindTimeout:
			s.batch.DeleteCtTimeout(o.name)
		}
	}
}
