package proxier

import (
	"errors"
	"maps"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
	"k8s.io/klog/v2"

	"github.com/nftproxy/nftproxy/nft"
)

// garbage is what nothing in the table refers to any more. It is deleted in a transaction of its own, after the one that took the last
// reference away: kernels before 6.2 notice only then that there is none.
type garbage map[discarded]struct{}

// discarded is a chain or a set that is not used any more.
type discarded struct {
	kind discardedKind
	name string
}

type discardedKind uint8

const (
	discardedChain discardedKind = iota
	discardedSet
)

// maxIdleBalancers is the number of balancers without rows that are kept for the
// next Service with that many endpoints. Every balancer makes verification slower.
const maxIdleBalancers = 16

// discardIdleBalancers makes the balancers that no row leads to garbage, if there
// are many.
func (b *Backend) discardIdleBalancers() {
	var idle []string
	for name, use := range b.have.balancers {
		if use.rows == 0 {
			idle = append(idle, name)
		}
	}
	if len(idle) <= maxIdleBalancers {
		return
	}
	for _, name := range idle {
		b.garbage[discarded{discardedChain, name}] = struct{}{}
	}
}

// prune deletes the garbage. What the kernel does not let go yet is tried again
// after the next sync: it does no harm.
func (b *Backend) prune() {
	b.discardIdleBalancers()
	if len(b.garbage) == 0 {
		return
	}
	b.batch.Reset()
	all := slices.SortedFunc(maps.Keys(b.garbage), func(x, y discarded) int {
		if x.kind != y.kind {
			return int(x.kind) - int(y.kind)
		}
		return strings.Compare(x.name, y.name)
	})
	for _, d := range all {
		if d.kind == discardedChain {
			b.batch.FlushChain(d.name)
		}
	}
	for _, d := range all {
		switch d.kind {
		case discardedChain:
			b.batch.DeleteChain(d.name)
		case discardedSet:
			b.batch.DeleteSet(d.name)
		}
	}
	if err := b.commitGuarded(); err != nil {
		klog.V(2).InfoS("Chains that are not used any more stay for now", "family", b.layout.family, "count", len(all), "err", err)
		b.metrics.cleanupFailures.Inc()
		b.forgetMissing(err)
		return
	}
	for d := range b.garbage {
		delete(b.have.balancers, d.name)
		delete(b.fingerprint.rules, d.name)
	}
	clear(b.garbage)
}

// forgetMissing takes from the garbage what the kernel says is not there.
func (b *Backend) forgetMissing(err error) {
	var refused *nft.CommitError
	if !errors.As(err, &refused) {
		return
	}
	for _, p := range refused.Problems {
		if p.Errno == unix.ENOENT {
			delete(b.garbage, discarded{discardedChain, p.Object})
			delete(b.garbage, discarded{discardedSet, p.Object})
		}
	}
}

// discard makes the chains of service ports garbage that are not used any more.
func (b *Backend) discard(tx *transaction) {
	for _, c := range tx.changes {
		for _, name := range b.render.chainNames(c.port.committed) {
			b.garbage[discarded{discardedChain, name}] = struct{}{}
		}
	}
	b.keep(tx)
}

// keep removes from the garbage the chains and sets that a committed transaction
// uses.
func (b *Backend) keep(tx *transaction) {
	for chain, n := range tx.uses {
		if n > 0 {
			delete(b.garbage, discarded{discardedChain, chain})
		}
	}
	for _, c := range tx.changes {
		for _, name := range b.render.chainNames(c.next) {
			delete(b.garbage, discarded{discardedChain, name})
		}
		if set := b.render.affinitySetOf(c.next); set != nil {
			delete(b.garbage, discarded{discardedSet, set.Name})
		}
	}
}
