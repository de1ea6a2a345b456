package xtables

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sort"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/nft"
)

// attempts limits the attempts to read or change a table that other programs
// change at the same time.
const attempts = 10

// ErrCounters is returned if a deletion was carried out, but another program,
// which did not take the lock, changed the table before its counters were
// restored.
var ErrCounters = errors.New("counters of other programs' rules were reset")

// errWordSize is returned on 32-bit machines, which have other layouts of the
// kernel's structures.
var errWordSize = errors.New("only a 64-bit build can change legacy tables: use one, or restart the node")

// Deletion has the rules and chains to delete from a table, and the chains to
// flush. Rules in chains of the latter two need not be listed.
type Deletion struct {
	Rules         []int // indexes, as in Jump
	Flush, Chains []string
}

func (d *Deletion) empty() bool { return len(d.Rules) == 0 && len(d.Flush) == 0 && len(d.Chains) == 0 }

// Delete reads a table and deletes what choose returns for it, under the lock
// of iptables. If another program changes the table meanwhile, Delete reads it
// again and calls choose again. It takes no lock if there is nothing to delete.
//
// The replacement is atomic for packets, and the rules that stay keep their
// counters.
func Delete(ctx context.Context, family nft.Family, name string, choose func(*Table) (Deletion, error)) error {
	s, err := open(family)
	if err != nil {
		return err
	}
	defer s.close()
	if _, d, err := s.readAndChoose(name, choose); err != nil || d.empty() {
		return err
	}
	if strconv.IntSize != 64 {
		return errWordSize
	}
	unlock, err := lock(ctx, LockFile, lockWait)
	if err != nil {
		return err
	}
	defer unlock()
	for range attempts {
		err = s.delete(name, choose)
		// EAGAIN: a program without the lock changed the table since the
		// read.
		if !errors.Is(err, unix.EAGAIN) || ctx.Err() != nil {
			break
		}
	}
	return err
}

func (s *socket) readAndChoose(name string, choose func(*Table) (Deletion, error)) (t Table, d Deletion, err error) {
	if t, err = s.read(name); err == nil {
		d, err = choose(&t)
	}
	return t, d, err
}

// delete replaces a table by one without the chosen rules and chains. That
// resets all counters, so delete restores them.
func (s *socket) delete(name string, choose func(*Table) (Deletion, error)) error {
	t, d, err := s.readAndChoose(name, choose)
	if err != nil || d.empty() {
		return err
	}
	to, kept, err := t.without(d)
	if err != nil {
		return err
	}
	counted, err := s.replace(to, len(t.entries))
	if err != nil {
		return err
	}
	counters := make([]counter, len(kept))
	for i, was := range kept {
		counters[i] = counted[was]
	}
	if err := s.addCounters(name, counters); err != nil {
		return fmt.Errorf("%w: %w", ErrCounters, err)
	}
	return nil
}

// without returns the table after a deletion, and the old indexes of its
// entries. It copies the kept entries byte by byte, except for the offsets of
// jumps.
func (t *Table) without(d Deletion) (to Table, kept []int, err error) {
	gaps := t.gaps(d)
	to = Table{name: t.name, hooks: t.hooks}
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
		to.entries = append(to.entries, entry{at, at + e.target - e.at, len(to.data)})
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

// gaps returns the deleted ranges. A deleted chain is a single gap, so that no
// jump to one of its entries is valid.
func (t *Table) gaps(d Deletion) gaps {
	var all gaps
	for _, i := range d.Rules {
		e := t.entries[i]
		all = append(all, gap{from: e.at, to: e.next})
	}
	flush, remove := nameSet(d.Flush), nameSet(d.Chains)
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
