package proxier

import (
	"slices"

	"github.com/nftproxy/nftproxy/nft"
)

// sharedRows counts how many service ports ask for each row of the shared sets. The kernel has those that
// somebody asks for.
type sharedRows map[sharedKey]int

type sharedKey struct {
	set *nft.Set
	key nft.Tuple
}

// sharedChange is a change of sharedRows that is not yet committed.
type sharedChange map[sharedKey]sharedCount

// sharedCount is by how many the service ports that ask for a row grow, and the tag of the last one that was counted.
type sharedCount struct {
	n   int
	tag uint32
}

func (c sharedChange) add(r nft.Row, n int, tag uint32) {
	k := sharedKey{r.Set, r.Key}
	c[k] = sharedCount{c[k].n + n, tag}
}

// rows returns the rows that come and go by the change, in order.
func (c sharedChange) rows(have sharedRows) (gone, come []taggedRow) {
	for k, count := range c {
		before, row := have[k], taggedRow{nft.Row{Set: k.set, Key: k.key}, count.tag}
		switch {
		case before == 0 && before+count.n > 0:
			come = append(come, row)
		case before > 0 && before+count.n == 0:
			gone = append(gone, row)
		}
	}
	order := func(a, b taggedRow) int { return a.Compare(b.Row) }
	slices.SortFunc(gone, order)
	slices.SortFunc(come, order)
	return gone, come
}

// apply carries the change out in the counts.
func (c sharedChange) apply(have sharedRows) {
	for k, count := range c {
		if have[k] += count.n; have[k] == 0 {
			delete(have, k)
		}
	}
}
