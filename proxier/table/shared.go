package table

import (
	"slices"

	"github.com/nftproxy/nftproxy/nft"
)

// sharedRows counts the service ports that have each row of the shared sets
// (see ruleset.Ruleset.IsShared). The kernel has the rows with a count above 0.
type sharedRows map[sharedKey]int

type sharedKey struct {
	set *nft.Set
	key nft.Tuple
}

// sharedChange is a change of sharedRows that is not committed yet.
type sharedChange map[sharedKey]sharedCount

// sharedCount is the change of a count, and the tag of the last service port
// that changed it.
type sharedCount struct {
	n   int
	tag uint32
}

// add changes the count of a row by n. It reports whether the row was not part
// of the change before.
func (c sharedChange) add(r nft.Row, n int, tag uint32) (first bool) {
	k := sharedKey{r.Set, r.Key}
	count, known := c[k]
	c[k] = sharedCount{count.n + n, tag}
	return !known
}

// rows returns the rows that the change removes and adds, in order.
func (c sharedChange) rows(have sharedRows) (removed, added []taggedRow) {
	for k, count := range c {
		before, row := have[k], taggedRow{nft.Row{Set: k.set, Key: k.key}, count.tag}
		switch {
		case before == 0 && before+count.n > 0:
			added = append(added, row)
		case before > 0 && before+count.n == 0:
			removed = append(removed, row)
		}
	}
	order := func(a, b taggedRow) int { return a.Compare(b.Row) }
	slices.SortFunc(removed, order)
	slices.SortFunc(added, order)
	return removed, added
}

// apply applies the change to the counts.
func (c sharedChange) apply(have sharedRows) {
	for k, count := range c {
		if have[k] += count.n; have[k] == 0 {
			delete(have, k)
		}
	}
}
