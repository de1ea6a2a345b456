package keep

import (
	"slices"

	"github.com/nftproxy/nftproxy/nft"
)

// write writes a transaction: an update, a rewrite or a repair. It calls flush
// where the transaction may end while no packet uses the table.
//
// The order is the same for all:
//
//  1. Counters, timeouts and sets: rules and rows need them.
//  2. Chains that are new or differ, all names before the first rule: the rules
//     refer to each other, and rows lead to the chains. If a chain followed the
//     rows, the kernel would walk the rows of each map that it uses.
//  3. Rows: those that the kernel must not have any more, then those that it
//     does not have, because a key can move from one owner to another. The
//     chain on demand that a row needs precedes it, in an update as a
//     transaction of its own (see commitChains).
//  4. Chains that depend on the sets that have rows, which is known only now.
//  5. Base chains, so that packets see nothing or everything.
//
// Before this, a rewrite empties the table that it found (see empty); after it,
// a takeover adds copies of the base chains (see takeoverChains). Chains and
// sets that nothing needs any more are deleted by the next transaction (see
// leftovers).
func (tx *transaction) write(flush func() error) error {
	before := tx.have.program
	if before == nil {
		before = &nft.Table{}
		for _, c := range tx.program.Counters {
			tx.to.AddCounter(c)
		}
		for _, s := range tx.program.Sets {
			tx.to.AddSet(s)
		}
	}
	isBase := func(c *nft.Chain) bool { return c.Hook != nil }
	again := tx.writeTimeouts(before)
	tx.writeChains(append(slices.DeleteFunc(changedChains(before, tx.program), isBase), again...)...)
	tx.writeChains(tx.repaired...)
	for _, c := range tx.changes {
		tx.to.Tag(c.Owner.Tag())
		tx.writeOwner(c)
		if err := flush(); err != nil {
			return err
		}
	}
	if err := tx.writeRows(flush); err != nil {
		return err
	}
	tx.to.Tag(0)
	early := tx.program
	if tx.changesUse() {
		tx.program = tx.source.Program(tx.uses)
		tx.writeChains(slices.DeleteFunc(changedChains(early, tx.program), isBase)...)
	}
	regular := func(c *nft.Chain) bool { return c.Hook == nil }
	tx.writeChains(slices.DeleteFunc(changedChains(before, tx.program), regular)...)
	return nil
}

// changedChains returns the chains that a table has and that another one does
// not have in the same form.
func changedChains(before, after *nft.Table) (changed []*nft.Chain) {
	if before == after {
		return nil
	}
	for _, c := range after.Chains {
		if old := findChain(before, c.Name); old == nil || !old.Equal(c) {
			changed = append(changed, c)
		}
	}
	return changed
}

// writeOwner writes the chains of an owner that are new or differ, and before
// them the sets on demand that they need.
func (tx *transaction) writeOwner(c Change) {
	if c.Next == nil {
		return
	}
	after := c.Next.Chains()
	if len(after) == 0 {
		return
	}
	for _, set := range c.Next.Sets() {
		if !tx.have.sets[set] && !tx.sets[set] {
			tx.sets[set] = true
			tx.to.AddSet(set)
		}
	}
	if !tx.whole && c.Before != nil {
		after = changedChains(&nft.Table{Chains: c.Before.Chains()}, &nft.Table{Chains: after})
	}
	tx.writeChains(after...)
}

// writeRows writes the rows.
func (tx *transaction) writeRows(flush func() error) error {
	removed, added := tx.shared.rows(tx.have.shared)
	for _, r := range append(tx.removed, removed...) {
		tx.deleteRow(r)
	}
	for _, r := range append(added, tx.added...) {
		tx.addRow(r)
	}
	if !tx.whole {
		return nil
	}
	var rows []nft.Row
	for _, c := range tx.changes {
		rows = rowsOf(rows[:0], c.Next)
		for _, r := range rows {
			tx.stream(taggedRow{r, c.Owner.Tag()})
		}
		if err := flush(); err != nil {
			return err
		}
	}
	tx.writeCounted()
	return nil
}

// stream writes a row of an owner in a rewrite.
func (tx *transaction) stream(r taggedRow) {
	if tx.source.Shared(r.Set) && tx.shared.add(r, 1) > 0 || tx.keepCounted(r) {
		return
	}
	tx.addRow(r)
}

// changesUse reports whether a set on demand has rows, and had none before, or
// the other way round.
func (tx *transaction) changesUse() bool {
	for set := range tx.counts {
		if tx.have.uses(set) != tx.uses(set) && tx.isOnDemand(set) {
			return true
		}
	}
	return false
}
