package table

import (
	"cmp"
	"errors"
	"maps"
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
type unused map[object]struct{}

// object is a chain, a set or a counter.
type object struct {
	kind objectKind
	name string
}

type objectKind uint8

const (
	kindChain objectKind = iota
	kindSet
	kindCounter
)

// maxIdleBalancers is the number of balancers without rows that are kept for
// the next Service with that many endpoints. Every balancer makes verification
// slower.
const maxIdleBalancers = 16

func (u unused) add(objects ...object) {
	for _, o := range objects {
		u[o] = struct{}{}
	}
}

// has reports whether an object is about to be deleted.
func (u unused) has(o object) bool {
	_, ok := u[o]
	return ok
}

// update adds the chains that a committed transaction no longer uses, and
// removes the chains and sets that it uses.
func (u unused) update(tx *transaction) {
	if !tx.whole {
		for _, c := range tx.changes {
			for _, name := range tx.rules.ChainNames(c.before) {
				u.add(object{kindChain, name})
			}
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

// sorted returns the objects in the order in which they are deleted: chains
// before the sets and counters that they refer to.
func (u unused) sorted() []object {
	return slices.SortedFunc(maps.Keys(u), func(a, b object) int {
		return cmp.Or(cmp.Compare(a.kind, b.kind), strings.Compare(a.name, b.name))
	})
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

// deleteUnused deletes chains, sets and counters that are no longer used. If
// the kernel refuses, they are tried again after the next sync: they do no
// harm.
func (t *Table) deleteUnused() {
	t.unused.add(t.committed.idleBalancers()...)
	if len(t.unused) == 0 {
		return
	}
	t.batch.Reset()
	all := t.unused.sorted()
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
	if err := t.commitGuarded(); err != nil {
		klog.V(2).InfoS("Failed to delete unused chains and sets, retrying after the next sync",
			"table", t.name(), "count", len(all), "err", err)
		t.stats.CleanupFailures++
		t.unused.forgetMissing(err)
		return
	}
	for _, o := range all {
		delete(t.committed.balancers, o.name)
		delete(t.observed.fingerprint.rules, o.name)
	}
	clear(t.unused)
}

// forgetMissing removes the objects that do not exist according to an error of
// the kernel.
func (u unused) forgetMissing(err error) {
	var refused *nft.CommitError
	if !errors.As(err, &refused) {
		return
	}
	for _, p := range refused.Problems {
		if p.Errno == unix.ENOENT {
			delete(u, object{kindChain, p.Object})
			delete(u, object{kindSet, p.Object})
			delete(u, object{kindCounter, p.Object})
		}
	}
}
