package leftovers

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"
	"sort"
)

// rewrite returns the table after a plan, and of each of its entries the number that it has now. All that stays is as it was, byte by byte; only
// offsets are others, since entries before them are gone.
func (t *legacyTable) rewrite(p plan) (to legacyTable, kept []int, err error) {
	gone := t.gaps(p)
	to = legacyTable{name: t.name, hooks: t.hooks}
	for hook, name := range hookChains {
		if !t.hooked(hook) {
			continue
		}
		if to.first[hook], err = gone.move(t.first[hook]); err == nil {
			to.policy[hook], err = gone.move(t.policy[hook])
		}
		if err != nil {
			return to, nil, fmt.Errorf("chain %s: %w", name, err)
		}
	}
	next := 0 // gap
	for i, e := range t.entries {
		for next < len(gone) && gone[next].to <= e.at {
			next++
		}
		if next < len(gone) && gone[next].from <= e.at {
			continue
		}
		at := len(to.data)
		to.data = append(to.data, t.data[e.at:e.next]...)
		to.entries = append(to.entries, legacyEntry{at, at + e.target - e.at, len(to.data)})
		kept = append(kept, i)
		if goesTo, ok := t.continuation(e); ok {
			goesTo, err := gone.move(goesTo)
			if err != nil {
				return to, nil, fmt.Errorf("entry at %d: %w", e.at, err)
			}
			binary.NativeEndian.PutUint32(to.data[at+e.target-e.at+targetDataAt:], uint32(goesTo))
		}
	}
	return to, kept, nil
}

// gap is a piece of a table that goes: all from one offset up to another. before is how many bytes go in the gaps before it.
type gap struct{ from, to, before int }

// gaps are what goes from a table, in order.
type gaps []gap

// gaps returns what goes from the table by a plan. Each chain that is deleted is one gap, so that no offset within it is the beginning of one.
func (t *legacyTable) gaps(p plan) gaps {
	var all gaps
	for _, r := range p.rules {
		e := t.entries[r.handle]
		all = append(all, gap{from: e.at, to: e.next})
	}
	flush, remove := set(p.flush), set(p.delete)
	for _, c := range t.chains {
		switch {
		case remove[c.name]:
			all = append(all, gap{from: t.entries[c.head].at, to: t.entries[c.last].next})
		case flush[c.name]:
			all = append(all, gap{from: t.entries[c.first].at, to: t.entries[c.last].at})
		}
	}
	slices.SortFunc(all, func(a, b gap) int { return cmp.Compare(a.from, b.from) })
	before := 0
	for i, g := range all {
		all[i].before = before
		before += g.to - g.from
	}
	return all
}

// move returns what an offset becomes. Where a gap begins, what follows the gap will be. What is within a gap is nowhere.
func (g gaps) move(at int) (int, error) {
	i := sort.Search(len(g), func(i int) bool { return g[i].from >= at }) - 1
	switch {
	case i < 0:
		return at, nil
	case at < g[i].to:
		return 0, fmt.Errorf("%w: %d is in a chain that is to go", errEntries, at)
	}
	return at - g[i].before - (g[i].to - g[i].from), nil
}

func set(names []string) map[string]bool {
	m := make(map[string]bool, len(names))
	for _, name := range names {
		m[name] = true
	}
	return m
}
