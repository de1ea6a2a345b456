package table

import (
	"cmp"
	"errors"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
	"k8s.io/klog/v2"

	"github.com/nftproxy/nftproxy/nft"
)

// unused are chains, sets and counters that nothing in the table refers to any
// more. They are deleted in a transaction of their own, after the one that
// deleted the last reference: before Linux 6.2 the kernel counts references
// until the end of the transaction.
//
// The value reports whether the kernel refused to delete the object, because
// something refers to it, such as a rule of another program. Then it is tried
// again with the next Resync or rewrite.
type unused map[object]bool

// maxIdleBalancers is the number of balancers without rows that are kept for
// the next Service with that many endpoints. Every balancer makes verification
// slower.
const maxIdleBalancers = 16

func (u unused) add(objects ...object) {
	for _, o := range objects {
		if !u.has(o) {
			u[o] = false
		}
	}
}

// has reports whether an object is about to be deleted.
func (u unused) has(o object) bool {
	_, ok := u[o]
	return ok
}

// update adds the chains and sets that a committed transaction no longer uses,
// and removes those that it uses.
func (u unused) update(tx *transaction) {
	if !tx.whole {
		for _, c := range tx.changes {
			for _, name := range tx.rules.ChainNames(c.before) {
				u.add(object{kindChain, name})
			}
		}
	}
	if tx.program != nil {
		if !tx.whole {
			for _, s := range tx.have.program.Sets {
				u.add(object{kindSet, s.Name})
			}
		}
		for _, s := range tx.program.Table.Sets {
			delete(u, object{kindSet, s.Name})
		}
	}
	for chain, n := range tx.uses {
		if n > 0 {
			delete(u, object{kindChain, chain})
		}
	}
	for _, c := range tx.changes {
		for _, name := range tx.rules.ChainNames(c.next) {
			delete(u, object{kindChain, name})
		}
		if set := tx.rules.AffinitySet(c.next); set != nil {
			delete(u, object{kindSet, set.Name})
		}
	}
}

// sorted returns the objects that can be deleted, in the order in which they
// are: chains before the sets and counters that they refer to.
func (u unused) sorted() (all []object) {
	for o, inUse := range u {
		if !inUse {
			all = append(all, o)
		}
	}
	slices.SortFunc(all, func(a, b object) int {
		return cmp.Or(cmp.Compare(b.kind, a.kind), strings.Compare(a.name, b.name))
	})
	return all
}

// idleBalancers returns the balancers without rows, if there are many.
func (c *committed) idleBalancers() (idle []object) {
	for name, rows := range c.balancers {
		if rows == 0 {
			idle = append(idle, object{kindChain, name})
		}
	}
	if len(idle) <= maxIdleBalancers {
		return nil
	}
	return idle
}

// deleteUnused deletes chains, sets and counters that are no longer used. It
// leaves those that the kernel does not delete: they do no harm.
func (t *Table) deleteUnused() {
	t.unused.add(t.committed.idleBalancers()...)
	for range maxAttempts {
		all := t.unused.sorted()
		if len(all) == 0 {
			return
		}
		t.writeDeletions(all)
		err := t.commitGuarded()
		if err == nil {
			for _, o := range all {
				delete(t.committed.balancers, o.name)
				delete(t.observed.rules, o.name)
				delete(t.unused, o)
			}
			return
		}
		klog.V(2).InfoS("Failed to delete unused chains and sets", "table", t.name(), "count", len(all), "err", err)
		t.stats.CleanupFailures++
		if !t.unused.exclude(err) {
			return // they are tried again after the next sync
		}
	}
}

// writeDeletions writes the deletion of objects to the batch.
func (t *Table) writeDeletions(all []object) {
	t.batch.Reset()
	for _, o := range all {
		if o.kind == kindChain {
			t.batch.FlushChain(o.name)
		}
	}
	for _, o := range all {
		switch o.kind {
		case kindChain:
			t.batch.DeleteChain(o.name)
		case kindSet:
			t.batch.DeleteSet(o.name)
		case kindCounter:
			t.batch.DeleteCounter(o.name)
		}
	}
}

// exclude excludes the objects from further deletions that do not exist, or are
// in use, according to an error of the kernel. It reports whether there are
// any.
func (u unused) exclude(err error) (any bool) {
	var refused *nft.CommitError
	if !errors.As(err, &refused) {
		return false
	}
	for _, p := range refused.Problems {
		for _, kind := range []objectKind{kindChain, kindSet, kindCounter} {
			o := object{kind, p.Object}
			switch inUse, ok := u[o]; {
			case !ok || inUse:
			case p.Errno == unix.ENOENT:
				delete(u, o)
				any = true
			case p.Errno == unix.EBUSY:
				u[o], any = true, true
			}
		}
	}
	return any
}

// retry makes the next deletion include all objects.
func (u unused) retry() {
	for o := range u {
		u[o] = false
	}
}
