package proxier

import (
	"errors"
	"maps"
	"slices"

	"k8s.io/klog/v2"

	"github.com/nftproxy/nftproxy/nft"
)

// update writes what changed since the last sync, in one transaction.
func (b *Backend) update() error {
	b.retryDirty()
	for {
		tx := b.begin(b.have)
		tx.changes = b.changes()
		if b.newNode {
			tx.setNode(b)
			if len(tx.table.Sets) != len(b.have.table.Sets) {
				b.doubt("the sets of the table change")
				return b.rewrite()
			}
		}
		b.write(tx)
		err := b.commitGuarded()
		var tampered *damage
		switch {
		case err == nil:
			b.discard(tx)
			for _, c := range tx.changes {
				b.noLocal.add(c.port.committed, -1)
				b.noLocal.add(c.next, 1)
			}
			b.remember(tx)
			if err := b.observeChange(tx); err != nil {
				return err
			}
			b.prune()
			return nil
		case errors.As(err, &tampered):
			return b.repaired(err)
		case b.refuseRetried(err):
			continue
		case errors.Is(err, nft.ErrGeneration):
			return err // nothing was committed, because other programs commit all the time
		}
		// Either the kernel does not have what it should have, or it refuses
		// something. Writing everything shows which.
		klog.InfoS("Update failed; writing the whole table", "table", b.tableName(), "err", err)
		b.doubt("update failed")
		return b.rewrite()
	}
}

// changes makes the plans of all service ports that may have changed.
func (b *Backend) changes() []change {
	var out []change
	for _, s := range sorted(slices.Collect(maps.Keys(b.dirty))) {
		for _, p := range s.ports {
			out = append(out, change{p, b.planOf(p)})
		}
	}
	return out
}

// write puts the difference between what the kernel has and the transaction into
// the batch: first new and changed chains, then the rows that go, then the rows
// that come, so that a row can pass from one service port to another.
func (b *Backend) write(tx *transaction) {
	b.batch.Reset()
	var gone, come []taggedRow
	if tx.table != nil {
		b.writeProgramChanges(tx.table)
		gone, come = tagged(diffRows(b.have.nodeRows, tx.nodeRows))
	}
	var before, after []nft.Row
	for _, c := range tx.changes {
		b.batch.Tag(c.port.tag)
		b.writeChainChanges(tx, c)
		before, after = b.render.rows(before[:0], c.port.committed), b.render.rows(after[:0], c.next)
		goneHere, comeHere := diffRows(before, after)
		for _, r := range goneHere {
			if b.layout.isShared(r.Set) {
				tx.shared.add(r, -1, c.port.tag)
			} else {
				gone = append(gone, taggedRow{r, c.port.tag})
			}
		}
		for _, r := range comeHere {
			if b.layout.isShared(r.Set) {
				tx.shared.add(r, 1, c.port.tag)
			} else {
				come = append(come, taggedRow{r, c.port.tag})
			}
		}
	}
	b.batch.Tag(0)
	tx.reserveIDs(b.ids.next)
	goneShared, comeShared := tx.shared.rows(b.have.shared)
	for _, r := range append(gone, goneShared...) {
		b.batch.Tag(r.tag)
		tx.deleteRow(r.Row)
	}
	for _, r := range append(comeShared, come...) {
		b.batch.Tag(r.tag)
		tx.needBalancer(r.Verdict.Chain())
		tx.addRow(r.Row)
	}
}

// taggedRow is a row and the tag of its service port, 0 if it has none.
type taggedRow struct {
	nft.Row
	tag uint32
}

func tagged(gone, come []nft.Row) (taggedGone, taggedCome []taggedRow) {
	for _, r := range gone {
		taggedGone = append(taggedGone, taggedRow{Row: r})
	}
	for _, r := range come {
		taggedCome = append(taggedCome, taggedRow{Row: r})
	}
	return taggedGone, taggedCome
}

// writeChainChanges puts the new and changed chains of a service port into the
// batch. Those that go become garbage after the commit.
func (b *Backend) writeChainChanges(tx *transaction, c change) {
	after := b.render.chains(c.next)
	if len(after) == 0 {
		return
	}
	tx.needAffinitySet(c.next)
	before := make(map[string]*nft.Chain)
	for _, chain := range b.render.chains(c.port.committed) {
		before[chain.Name] = chain
	}
	tx.writeChains(slices.DeleteFunc(after, func(chain *nft.Chain) bool {
		old := before[chain.Name]
		return old != nil && old.Equal(chain)
	})...)
}

// writeProgramChanges puts the changed chains of the program into the batch.
func (b *Backend) writeProgramChanges(table *nft.Table) {
	for i, c := range table.Chains {
		if !c.Equal(b.have.table.Chains[i]) {
			b.batch.FlushChain(c.Name)
			b.batch.AddRules(c)
		}
	}
}

// diffRows returns the rows that are in before only, and those that are in after
// only. A row whose data differs is in both. Most rows are the same and in the same
// place, so only the others are looked up.
func diffRows(before, after []nft.Row) (gone, come []nft.Row) {
	var moved []nft.Row
	n := min(len(before), len(after))
	for i := range n {
		if before[i] != after[i] {
			gone, moved = append(gone, before[i]), append(moved, after[i])
		}
	}
	gone, moved = append(gone, before[n:]...), append(moved, after[n:]...)
	left := make(map[nft.Row]struct{}, len(gone))
	for _, r := range gone {
		left[r] = struct{}{}
	}
	for _, r := range moved {
		if _, same := left[r]; same {
			delete(left, r)
		} else {
			come = append(come, r)
		}
	}
	gone = slices.DeleteFunc(gone, func(r nft.Row) bool {
		_, is := left[r]
		return !is
	})
	return gone, come
}

// remember records what was committed.
func (b *Backend) remember(tx *transaction) {
	nodePortsBefore := b.have.nodePortAddrs
	b.have.apply(tx)
	b.ids.committed()
	if tx.table != nil {
		b.newNode = false
		b.setHealthAddrs()
	}
	b.cleanFlows(tx, nodePortsBefore)
	for _, c := range tx.changes {
		b.ids.release(c.port.committed, c.next)
		c.port.committed = c.next
		if c.next != nil {
			b.accept(c.port)
		}
	}
	b.setHealth(b.dirty)
	for s := range b.dirty {
		b.forget(s)
	}
	b.dirty = make(map[*serviceState]struct{}) // iterating over an emptied map costs what it once held
}
