package xtables

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
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
// flush. All chains must be in the table. Rules in chains of the latter two
// need not be listed.
type Deletion struct {
	Rules         map[string][]int // by chain: positions in Table.Rules
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

func (s *socket) readAndChoose(name string, choose func(*Table) (Deletion, error)) (t *Table, d Deletion, err error) {
	if t, err = s.read(name); err == nil {
		d, err = choose(t)
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
	to, old, err := t.without(d)
	if err != nil {
		return err
	}
	counted, err := s.replace(to, len(t.entries))
	if err != nil {
		return err
	}
	counters := make([]counter, len(old))
	for i, was := range old {
		counters[i] = counted[was]
	}
	if err := s.addCounters(name, counters); err != nil {
		return fmt.Errorf("%w: %w", ErrCounters, err)
	}
	return nil
}

// fate is what a deletion does to an entry.
type fate uint8

const (
	kept    fate = iota
	deleted      // jumps to it lead to the next kept entry
	lost         // with its chain: there must be no jumps to it
)

// fates returns the fates of the entries of a table.
func (t *Table) fates(d Deletion) []fate {
	fates := make([]fate, len(t.entries))
	set := func(entries []fate, f fate) {
		for i := range entries {
			entries[i] = f
		}
	}
	for name, rules := range d.Rules {
		for _, i := range rules {
			fates[t.chains[name].first+i] = deleted
		}
	}
	for _, name := range d.Flush {
		c := t.chains[name]
		set(fates[c.first:c.last], deleted)
	}
	for _, name := range d.Chains {
		c := t.chains[name]
		set(fates[c.head:c.last+1], lost)
	}
	return fates
}

// without returns the table after a deletion, and the old indexes of its
// entries. It copies the kept entries byte by byte, except for the offsets of
// jumps.
func (t *Table) without(d Deletion) (to *Table, old []int, err error) {
	to = &Table{Family: t.Family, Name: t.Name, info: t.info}
	fates, moved := t.fates(d), make([]int, len(t.entries)) // the new offsets of the entries
	for i, e := range t.entries {
		at := len(to.data)
		moved[i] = at
		if fates[i] == kept {
			to.data = append(to.data, t.data[e.at:e.next]...)
			to.entries = append(to.entries, entry{at, at + e.target - e.at, len(to.data)})
			old = append(old, i)
		}
	}
	move := func(at int) int {
		i, ok := slices.BinarySearchFunc(t.entries, at, func(e entry, at int) int { return cmp.Compare(e.at, at) })
		if !ok || fates[i] == lost {
			err = fmt.Errorf("%w: offset %d is in a deleted chain", errEntries, at)
			return at
		}
		return moved[i]
	}
	for hook := range hookChains {
		if t.hasHook(hook) {
			to.info.First[hook] = uint32(move(int(t.info.First[hook])))
			to.info.Policy[hook] = uint32(move(int(t.info.Policy[hook])))
		}
	}
	for i, e := range to.entries {
		if at, ok := t.continuation(t.entries[old[i]]); ok {
			binary.NativeEndian.PutUint32(to.data[e.target+targetDataAt:], uint32(move(at)))
		}
	}
	return to, old, err
}
