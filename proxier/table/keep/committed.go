package keep

import (
	"iter"
	"maps"
	"slices"

	"github.com/nftproxy/nftproxy/nft"
)

// committed is what the kernel has of a table, apart from the contents of
// owners (Kept.have), as of the last commit that succeeded. It changes only
// after a commit, by transaction.apply, which cannot fail. samplesOf caches
// samples in it.
type committed struct {
	program *nft.Table // nil before the first commit
	rows    []nft.Row  // of no owner
	// chains are the ids of the chains on demand that exist, sets the sets on
	// demand that packets fill. They stay until everything is written: an
	// unused one costs little. needed is how many chains were written then.
	chains map[uint32]bool
	sets   map[*nft.Set]bool
	needed int
	shared sharedRows
	// counts are the numbers of rows, samples a few rows of each set that has
	// any.
	counts  map[*nft.Set]int
	samples map[*nft.Set][]nft.Row
	// extra are the numbers of rows of other programs that stay.
	extra map[*nft.Set]int
}

func newCommitted() *committed {
	return &committed{
		chains:  make(map[uint32]bool),
		sets:    make(map[*nft.Set]bool),
		shared:  make(sharedRows),
		counts:  make(map[*nft.Set]int),
		samples: make(map[*nft.Set][]nft.Row),
		extra:   make(map[*nft.Set]int),
	}
}

const (
	// maxSamples is the number of rows of a set that are kept to find out
	// whether another program flushed the set. It is more than one, so that a
	// change of one owner rarely deletes all of them.
	maxSamples = 4
	// maxUnused is the number of chains on demand that may be unused: an owner
	// that changes all the time can add one with each change.
	maxUnused = 1000
)

// mayUseLess reports whether a rewrite may delete many chains.
func (c *committed) mayUseLess() bool { return len(c.chains) > c.needed+maxUnused }

// samplesOf returns samples of a set that has rows. If none are kept, it finds
// new ones.
func (c *committed) samplesOf(source Source, set *nft.Set) []nft.Row {
	if c.counts[set] == 0 || len(c.samples[set]) > 0 {
		return c.samples[set]
	}
	find := func(rows []nft.Row) bool {
		i := slices.IndexFunc(rows, func(r nft.Row) bool { return r.Set == set })
		if i >= 0 {
			c.samples[set] = []nft.Row{rows[i]}
		}
		return i >= 0
	}
	for rows := range c.allRows(source) {
		if find(rows) {
			break
		}
	}
	return c.samples[set]
}

// ownRows returns the rows of no owner, and those that lead to chains on
// demand.
func (c *committed) ownRows(source Source) []nft.Row {
	rows := slices.Clone(c.rows)
	for id := range c.chains {
		_, row := source.Chain(id)
		rows = append(rows, row)
	}
	return rows
}

// allRows iterates over the rows that the kernel has: of no owner, and then of
// each owner. It reuses the slice.
func (c *committed) allRows(source Source) iter.Seq[[]nft.Row] {
	return func(yield func([]nft.Row) bool) {
		rows := c.ownRows(source)
		if !yield(rows) {
			return
		}
		for o := range source.Owners(false) {
			if have := o.Kept().have; have != nil {
				if rows = have.Rows(rows[:0]); !yield(rows) {
					return
				}
			}
		}
	}
}

// uses reports whether a set has rows.
func (c *committed) uses(s *nft.Set) bool { return c.counts[s] > 0 }

// structure returns the table that was committed without the chains of owners,
// and with regular chains only if all is true.
func (c *committed) structure(source Source, all bool) *nft.Table {
	want := *c.program
	want.Sets, want.Chains = slices.Clone(want.Sets), nil
	for _, s := range source.OnDemand() {
		if c.sets[s] {
			want.Sets = append(want.Sets, s)
		}
	}
	for _, chain := range c.program.Chains {
		if all || chain.Hook != nil {
			want.Chains = append(want.Chains, chain)
		}
	}
	if all {
		for _, id := range slices.Sorted(maps.Keys(c.chains)) {
			chain, _ := source.Chain(id)
			want.Chains = append(want.Chains, chain)
		}
	}
	return &want
}

// someChains returns the chains of the program, and up to n chains on demand,
// different ones each time.
func (c *committed) someChains(source Source, n int) []*nft.Chain {
	chains := slices.Clone(c.program.Chains)
	for id := range c.chains {
		if n--; n < 0 {
			break
		}
		chain, _ := source.Chain(id)
		chains = append(chains, chain)
	}
	return chains
}

// findChain returns the chain of a table with a name, nil if there is none.
func findChain(t *nft.Table, name string) *nft.Chain {
	i := slices.IndexFunc(t.Chains, func(c *nft.Chain) bool { return c.Name == name })
	if i < 0 {
		return nil
	}
	return t.Chains[i]
}
