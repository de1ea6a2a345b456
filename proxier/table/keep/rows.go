package keep

import (
	"slices"

	"github.com/nftproxy/nftproxy/nft"
)

// rowKey identifies a row.
type rowKey struct {
	set *nft.Set
	key nft.Tuple
}

// row returns the row with a comment.
func (k rowKey) row(comment string) nft.Row { return nft.Row{Set: k.set, Key: k.key, Comment: comment} }

// sameKeyAs returns a function that reports whether a row has the key of r.
func sameKeyAs(r nft.Row) func(nft.Row) bool {
	return func(o nft.Row) bool { return o.Key == r.Key }
}

// taggedRow is a row and the tag of its owner, 0 for a row of no owner.
type taggedRow struct {
	nft.Row
	tag uint32
}

// diffRows returns the rows that are in before only, and those that are in
// after only. A row whose data differs is in both. Most rows are equal and in
// the same order, so only the others are looked up. If one list is empty, the
// results share memory with the other one.
func diffRows(before, after []nft.Row) (removed, added []nft.Row) {
	if len(before) == 0 || len(after) == 0 {
		return before, after
	}
	var moved []nft.Row
	b, a := before, after
	for ordered := true; len(b) > 0 && len(a) > 0; {
		if b[0] == a[0] {
			b, a = b[1:], a[1:]
			continue
		}
		gone, more := 1, 1
		if ordered && !sameRowKey(b[0], a[0]) {
			// An owner with fewer endpoints, or more, has other rows at the end
			// of each frontend.
			if len(b) > len(a) {
				gone, more = indexOfKey(b, a[0]), 0
			} else {
				gone, more = 0, indexOfKey(a, b[0])
			}
			if ordered = gone >= 0 && more >= 0; !ordered {
				continue
			}
		}
		removed, moved = append(removed, b[:gone]...), append(moved, a[:more]...)
		b, a = b[gone:], a[more:]
	}
	removed, moved = append(removed, b...), append(moved, a...)
	left := make(map[nft.Row]bool, len(removed))
	for _, r := range removed {
		left[r] = true
	}
	for _, r := range moved {
		if left[r] {
			delete(left, r)
		} else {
			added = append(added, r)
		}
	}
	return slices.DeleteFunc(removed, func(r nft.Row) bool { return !left[r] }), added
}

// maxGone is the number of rows of which diffRows notices that they are missing
// in one place.
const maxGone = 4096

// indexOfKey returns the index of the first row with the key of another one,
// negative if the first maxGone rows have none.
func indexOfKey(rows []nft.Row, r nft.Row) int {
	return slices.IndexFunc(rows[:min(len(rows), maxGone)], func(o nft.Row) bool { return sameRowKey(o, r) })
}

func sameRowKey(a, b nft.Row) bool { return a.Set == b.Set && a.Key == b.Key }

// sharedRows counts the owners that have each row of the shared sets (see
// Source.Shared), or how such counts change. The kernel has the rows with a
// count above 0.
type sharedRows map[rowKey]sharedCount

// sharedCount is a count, and the tag of the last owner that changed it.
type sharedCount struct {
	n   int32
	tag uint32
}

// add changes the count of a row by n, and returns the change so far.
func (c sharedRows) add(r taggedRow, n int32) (before int32) {
	k := rowKey{r.Set, r.Key}
	before = c[k].n
	c[k] = sharedCount{before + n, r.tag}
	return before
}

// rows returns the rows that a change of what the kernel has removes and adds,
// in order.
func (c sharedRows) rows(have sharedRows) (removed, added []taggedRow) {
	for k, change := range c {
		before, row := have[k].n, taggedRow{k.row(""), change.tag}
		switch {
		case before == 0 && before+change.n > 0:
			added = append(added, row)
		case before > 0 && before+change.n == 0:
			removed = append(removed, row)
		}
	}
	order := func(a, b taggedRow) int { return a.Compare(b.Row) }
	slices.SortFunc(removed, order)
	slices.SortFunc(added, order)
	return removed, added
}

// apply applies a change.
func (c sharedRows) apply(change sharedRows) {
	for k, count := range change {
		if count.n += c[k].n; count.n == 0 {
			delete(c, k)
		} else {
			c[k] = count
		}
	}
}

// rowsOf appends the rows of a content, which may be nil.
func rowsOf(to []nft.Row, c Content) []nft.Row {
	if c == nil {
		return to
	}
	return c.Rows(to)
}

// chainNames returns the names of the chains of a content, which may be nil.
func chainNames(c Content) []string {
	if c == nil {
		return nil
	}
	return c.ChainNames()
}

// rowBuffers hold the rows of an owner before and after a transaction. Updates
// use them again, so that most of them allocate no rows.
type rowBuffers struct{ before, after []nft.Row }

// maxBuffered is the capacity of a buffer above which it is not kept.
const maxBuffered = 4096
