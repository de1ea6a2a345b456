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

// A change of one owner is one transaction, so that packets see its old or its
// new state, unless it changes more than Limits.StageRows rows: then other
// accounts would wait too long. Such a change has stages, each a part of its
// own:
//
//	stageFirst   rows that can be added or replaced before the others: those of
//	             sets with indexes, and of shared sets. Packets use new rows in
//	             the place of old ones at once, and rows beyond the old number
//	             later
//	stageMost    what is left of these rows, and all others, which lead to them
//	stageAll     rows that nothing leads to any more
//
// Between stages, Kept.staged has the rows in the kernel, so that everything
// that compares a table with the kernel, and the next stage, begin with them.
// An owner that changes meanwhile goes on from there.

// cut leaves out rows of a change, if it is too large for one transaction. It
// returns the rows to remove and to add.
func (tx *transaction) cut(c *Change, before, removed, added []nft.Row) (remove, add []nft.Row) {
	if len(removed)+len(added) <= tx.most {
		return removed, added
	}
	isFree := func(r nft.Row) bool { return tx.source.IsIndexed(r.Set) || tx.source.Shared(r.Set) }
	free := slices.DeleteFunc(slices.Clone(added), func(r nft.Row) bool { return !isFree(r) })
	if c.wanted = c.Next; len(free) > tx.most {
		c.Next, c.stage, add = c.Before, stageFirst, free[:tx.most]
	} else {
		add = added
	}
	replaced := make(map[rowKey]bool, len(add))
	for _, r := range add {
		replaced[rowKey{r.Set, r.Key}] = true
	}
	left := max(0, tx.most-len(add))
	for _, r := range removed {
		switch {
		case replaced[rowKey{r.Set, r.Key}], c.stage != stageFirst && !isFree(r):
			remove = append(remove, r)
		case c.stage != stageFirst && left > 0:
			left--
			remove = append(remove, r)
		case c.stage == stageAll:
			c.stage = stageMost
		}
	}
	if c.stage != stageAll {
		c.staged = after(before, remove, add)
	}
	return remove, add
}

// after returns rows without those that are removed and with those that are
// added, in the places of others with the same keys if there are any.
func after(rows, removed, added []nft.Row) []nft.Row {
	gone := make(map[nft.Row]bool, len(removed))
	for _, r := range removed {
		gone[r] = true
	}
	byKey := make(map[rowKey]nft.Row, len(added))
	for _, r := range added {
		byKey[rowKey{r.Set, r.Key}] = r
	}
	result := make([]nft.Row, 0, len(rows)+len(added))
	for _, r := range rows {
		key := rowKey{r.Set, r.Key}
		replaced, ok := byKey[key]
		switch {
		case !gone[r]:
			result = append(result, r)
		case ok:
			result = append(result, replaced)
			delete(byKey, key)
		}
	}
	for _, r := range added {
		key := rowKey{r.Set, r.Key}
		if _, ok := byKey[key]; ok {
			result = append(result, r)
			delete(byKey, key)
		}
	}
	return result
}

// An object `ct timeout` cannot be changed. One that differs is deleted, with
// the rules that refer to it, and added again with the same name in the same
// transaction, so that packets always meet one. When the kernel deletes an
// object, it walks all connections, so a rewrite keeps those that are equal.
// Only chains of the program that are not base chains refer to such objects.

// writeTimeouts writes the objects that are new or differ. It returns the
// chains that lost their rules, unless the program has others now.
func (tx *transaction) writeTimeouts(before *nft.Table) (again []*nft.Chain) {
	lost := make(map[*nft.Chain]bool)
	for _, want := range tx.program.CtTimeouts {
		has := tx.findTimeout(want.Name)
		if has != nil && has.Matches(want) {
			continue
		}
		if has != nil {
			for _, c := range before.Chains {
				if refersTo(c, want) {
					lost[c] = true
					tx.to.FlushChain(c.Name)
				}
			}
			tx.replaced = append(tx.replaced, want.Name)
			tx.to.DeleteCtTimeout(want.Name)
		}
		tx.to.AddCtTimeout(want)
	}
	for old := range lost {
		if c := findChain(tx.program, old.Name); c != nil && c.Equal(old) {
			again = append(again, c)
		}
	}
	return again
}

// findTimeout returns the object with a name that the kernel has before the
// transaction, nil if there is none.
func (tx *transaction) findTimeout(name string) *nft.CtTimeout {
	if tx.whole {
		if f, ok := tx.found[object{kindTimeout, name}]; ok {
			return &f.timeout
		}
		return nil
	}
	for _, c := range tx.have.program.CtTimeouts {
		if c.Name == name {
			return c
		}
	}
	return nil
}

func refersTo(chain *nft.Chain, timeout *nft.CtTimeout) bool {
	for _, r := range chain.Rules {
		if r.Sets(timeout) {
			return true
		}
	}
	return false
}
