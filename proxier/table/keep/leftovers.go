package keep

import (
	"cmp"
	"errors"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/klog/v2"

	"github.com/nftproxy/nftproxy/nft"
)

// A chain or set is deleted when nothing needs it any more:
//
//	the program needs it            until the Source has another program
//	one owner needs it              until the owner has other chains
//	rows need it (set on demand)    until the set has no rows
//	rows need it (chain on demand)  until many are unused: then a few at a time are
//	                                deleted, at the expense of those that needed them
//	chains need it (set on demand)  until a rewrite that does not need it
//	a takeover needed it            at once: it is a copy of a base chain
//	nothing needs it                at once: a rewrite found it
//
// A leftover that is needed again before it is deleted is written again.

// leftovers are chains, sets, counters and timeouts that nothing in the table
// refers to any more. They are deleted in a transaction of their own, after the
// one that deleted the last reference: before Linux 6.2 the kernel counts
// references until the end of the transaction.
//
// The value reports whether the kernel refused to delete the object, because
// something refers to it, such as a rule of another program. Then it is tried
// again with the next Resync or rewrite.
type leftovers map[object]bool

func (l leftovers) add(kind objectKind, names ...string) {
	for _, name := range names {
		if o := (object{kind, name}); !l.has(o) {
			l[o] = false
		}
	}
}

// has reports whether an object is about to be deleted.
func (l leftovers) has(o object) bool {
	_, ok := l[o]
	return ok
}

// update adds the chains and sets that a committed transaction no longer uses,
// and removes those that it uses.
func (l leftovers) update(tx *transaction) {
	program := tx.program != tx.have.program
	if !tx.whole {
		for _, c := range tx.changes {
			if c.Before != nil {
				l.add(kindChain, c.Before.ChainNames()...)
			}
		}
		for i := 0; program && i < len(tx.have.program.Sets); i++ {
			l.add(kindSet, tx.have.program.Sets[i].Name)
		}
	}
	for i := 0; program && i < len(tx.program.Sets); i++ {
		delete(l, object{kindSet, tx.program.Sets[i].Name})
	}
	for set := range tx.sets {
		delete(l, object{kindSet, set.Name})
	}
	for id := range tx.demand {
		chain, _ := tx.source.Chain(id)
		delete(l, object{kindChain, chain.Name})
	}
	for _, c := range tx.changes {
		if c.Next != nil {
			for _, name := range c.Next.ChainNames() {
				delete(l, object{kindChain, name})
			}
		}
	}
}

// sorted returns the objects that can be deleted, in the order in which they
// are: chains before the sets and objects that they refer to.
func (l leftovers) sorted() (all []object) {
	for o, inUse := range l {
		if !inUse {
			all = append(all, o)
		}
	}
	slices.SortFunc(all, func(a, b object) int {
		return cmp.Or(cmp.Compare(b.kind, a.kind), strings.Compare(a.name, b.name))
	})
	return all
}

// exclude excludes the objects from further deletions that do not exist, or are
// in use, according to an error of the kernel. It reports whether there are
// any.
func (l leftovers) exclude(err error) (any bool) {
	refused, ok := errors.AsType[*nft.CommitError](err)
	if !ok {
		return false
	}
	for _, p := range refused.Problems {
		for _, kind := range []objectKind{kindChain, kindSet, kindCounter, kindTimeout} {
			o := object{kind, p.Object}
			switch inUse, ok := l[o]; {
			case !ok || inUse:
			case p.Errno == unix.ENOENT:
				delete(l, o)
				any = true
			case p.Errno == unix.EBUSY:
				l[o], any = true, true
			}
		}
	}
	return any
}

// retry makes the next deletion include all objects.
func (l leftovers) retry() {
	for o := range l {
		l[o] = false
	}
}

// maxRetired is the number of unused chains that are deleted at a time.
const maxRetired = 100

// retire deletes some chains on demand that no row needs, if there are many:
// one transaction deletes the rows that lead to them, the next one the chains.
// Their accounts pay for it.
func (k *Keeper) retire() error {
	if k.link.doubt != "" || k.state.have.unused <= k.limits.UnusedChains {
		return nil
	}
	tx := newTransaction(k.link.batch, k.source, k.state.have)
	if tx.retired = k.state.have.retired(maxRetired, time.Now().Add(-k.limits.UnusedFor)); len(tx.retired) == 0 {
		return nil
	}
	var accounts []*Account
	k.link.resetBatch(false)
	for _, id := range tx.retired {
		_, row := k.source.Chain(id)
		tx.deleteRow(taggedRow{row, 0})
		accounts = append(accounts, k.state.have.chains[id].by)
	}
	used, err := ThreadTimeOf(func() error {
		if err := k.state.commitGuarded(); err != nil {
			klog.V(2).InfoS("Failed to delete unused chains", "table", k.link.name(), "count", len(tx.retired),
				"err", err)
			return nil // they are tried again after the next sync
		}
		for _, id := range tx.retired {
			chain, _ := k.source.Chain(id)
			k.state.leftovers.add(kindChain, chain.Name)
		}
		return k.state.finish(tx)
	})
	for _, a := range accounts {
		if a != nil {
			a.pay(used/time.Duration(len(accounts)), time.Now())
		}
	}
	return err
}

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
			s.forget(c.Owner)
		}
	}
	isFirst := func(c Change) bool { return c.stage == stageFirst }
	changes := slices.DeleteFunc(slices.Clone(tx.changes), isFirst)
	s.source.Report(&Commit{Whole: tx.whole, Program: program, Changes: changes})
	if err := s.observe(tx, program); err != nil {
		return err
	}
	if tx.whole || s.link.batch.Len() > largeBatch {
		s.link.batch = nft.NewBatch(s.link.table) // releases its buffers
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
		klog.V(2).InfoS("Failed to delete unused chains and sets", "table", s.link.name(), "count", len(all),
			"err", err)
		s.link.totals.CleanupFailures++
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
	s.link.batch.Reset()
	for _, o := range all {
		if o.kind == kindChain {
			s.link.batch.FlushChain(o.name)
		}
	}
	for _, o := range all {
		switch o.kind {
		case kindChain:
			s.link.batch.DeleteChain(o.name)
		case kindSet:
			s.link.batch.DeleteSet(o.name)
		case kindCounter:
			s.link.batch.DeleteCounter(o.name)
		case kindTimeout:
			s.link.batch.DeleteCtTimeout(o.name)
		}
	}
}

func (k *Keeper) deleteChain(name string) {
	k.link.batch.FlushChain(name)
	k.link.batch.DeleteChain(name)
}
