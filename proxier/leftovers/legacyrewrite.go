package leftovers

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"
	"sort"
)

// rewrite returns the table after a plan, and the old indexes of its entries.
// It copies the kept entries byte by byte, except for the offsets of jumps.
func (t *legacyTable) rewrite(p plan) (to legacyTable, kept []int, err error) {
	gaps := t.gaps(p)
	to = legacyTable{name: t.name, hooks: t.hooks}
	for hook, name := range hookChains {
		if !t.hasHook(hook) {
			continue
		}
		if to.first[hook], err = gaps.move(t.first[hook]); err == nil {
			to.policy[hook], err = gaps.move(t.policy[hook])
		}
		if err != nil {
			return to, nil, fmt.Errorf("chain %s: %w", name, err)
		}
	}
	next := 0 // index in gaps
	for i, e := range t.entries {
		for next < len(gaps) && gaps[next].to <= e.at {
			next++
		}
		if next < len(gaps) && gaps[next].from <= e.at {
			continue
		}
		at := len(to.data)
		to.data = append(to.data, t.data[e.at:e.next]...)
		to.entries = append(to.entries, legacyEntry{at, at + e.target - e.at, len(to.data)})
		kept = append(kept, i)
		if target, ok := t.continuation(e); ok {
			target, err := gaps.move(target)
			if err != nil {
				return to, nil, fmt.Errorf("entry at %d: %w", e.at, err)
			}
			binary.NativeEndian.PutUint32(to.data[at+e.target-e.at+targetDataAt:], uint32(target))
		}
	}
	return to, kept, nil
}

// gap is a deleted range of offsets, excluding to. before is the size of all
// preceding gaps.
type gap struct{ from, to, before int }

// gaps are the deleted ranges of a table in ascending order.
type gaps []gap

// gaps returns the ranges that a plan deletes. A deleted chain is a single
// gap, so that no jump to one of its entries is valid.
func (t *legacyTable) gaps(p plan) gaps {
	var all gaps
	for _, r := range p.rules {
		e := t.entries[r.handle]
		all = append(all, gap{from: e.at, to: e.next})
	}
	flush, remove := nameSet(p.flush), nameSet(p.delete)
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

// move returns the new value of an offset. The start of a gap becomes the
// offset of the entry after the gap. An offset within a gap is an error.
func (g gaps) move(at int) (int, error) {
	i := sort.Search(len(g), func(i int) bool { return g[i].from >= at }) - 1
	switch {
	case i < 0:
		return at, nil
	case at < g[i].to:
		return 0, fmt.Errorf("%w: offset %d is in a deleted chain", errEntries, at)
	}
	return at - g[i].before - (g[i].to - g[i].from), nil
}

func nameSet(names []string) map[string]bool {
	m := make(map[string]bool, len(names))
	for _, name := range names {
		m[name] = true
	}
	return m
}
