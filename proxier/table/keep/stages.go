package keep

import (
	"slices"

	"github.com/nftproxy/nftproxy/nft"
)

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

// stage is the last stage that a transaction writes.
type stage uint8

const (
	stageAll   stage = iota // the change is complete
	stageFirst              // the content stays the old one
	stageMost               // the content is the new one
)

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
