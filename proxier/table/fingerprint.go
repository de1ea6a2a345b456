package table

import (
	"fmt"
	"maps"
	"slices"

	"github.com/nftproxy/nftproxy/nft"
)

// fingerprint contains the handles of objects. The kernel never reuses a
// handle, but a rule that replaces another one keeps its handle.
type fingerprint struct {
	table    nft.FoundTable
	sets     map[string]uint64         // by name
	counters map[string]uint64         // of the program, by name
	counts   map[string]int            // number of rows, by set; compare ignores it
	bases    map[string]nft.FoundChain // base chains of the program
	rules    map[string][]nft.RuleID   // by chain of the program, and by balancer
}

// readFingerprint reads the fingerprint of the table with the rules of these
// chains.
func (t *Table) readFingerprint(chains []string) (*fingerprint, error) {
	table := t.committed.program
	f := &fingerprint{
		sets: make(map[string]uint64), counts: make(map[string]int),
		bases: make(map[string]nft.FoundChain), rules: make(map[string][]nft.RuleID),
	}
	var err error
	var exists bool
	if f.table, exists, err = t.kernel.FindTable(table); err != nil || !exists {
		return f, err
	}
	sets, err := t.kernel.Sets(table)
	if err != nil {
		return nil, err
	}
	known := t.knownSets()
	for _, s := range sets {
		if _, ok := known[s.Name]; ok {
			f.sets[s.Name], f.counts[s.Name] = s.Handle, s.Count
		}
	}
	if f.counters, err = t.readCounters(); err != nil {
		return nil, err
	}
	for _, c := range table.Chains {
		if c.Hook == nil {
			continue
		}
		found, ok, err := t.kernel.FindChain(table, c.Name)
		if err != nil {
			return nil, err
		}
		if ok {
			f.bases[c.Name] = found
		}
	}
	for _, chain := range chains {
		if f.rules[chain], err = t.kernel.RuleIDs(table, chain); err != nil {
			return nil, err
		}
	}
	return f, nil
}

// readCounters reads the handles of the counters of the program, by name.
func (t *Table) readCounters() (map[string]uint64, error) {
	if len(t.committed.program.Counters) == 0 {
		return nil, nil
	}
	found, err := t.kernel.Counters(t.committed.program)
	handles := make(map[string]uint64)
	for _, c := range found {
		handles[c.Name] = c.Handle
	}
	return handles, err
}

// knownSets returns the sets of the table, by name.
func (t *Table) knownSets() map[string]*nft.Set {
	known := make(map[string]*nft.Set, len(t.committed.program.Sets)+len(t.committed.affinity))
	for _, s := range t.committed.program.Sets {
		known[s.Name] = s
	}
	for s := range t.committed.affinity {
		known[s.Name] = s
	}
	return known
}

// maxVerifiedBalancers is the number of balancers that are verified at a time.
// If there are more, the scrubber reads the others.
const maxVerifiedBalancers = 32

// knownChains returns the names of the chains of the program, and of some
// balancers.
func (t *Table) knownChains() []string {
	names := make([]string, 0, len(t.committed.program.Chains)+maxVerifiedBalancers)
	for _, c := range t.committed.program.Chains {
		names = append(names, c.Name)
	}
	for name := range t.committed.balancers { // in a different order each time
		if len(names) == cap(names) {
			break
		}
		names = append(names, name)
	}
	return names
}

// compare returns a difference between the fingerprint that was found and the
// one of the table as it was committed, nil if there is none.
func (f *fingerprint) compare(want *fingerprint) *damage {
	switch {
	case f.table.Handle == 0:
		return &damage{damagedTable, "the table was deleted"}
	case f.table.Handle != want.table.Handle:
		return &damage{damagedTable, "the table was replaced"}
	case f.table.Flags != want.table.Flags:
		return &damage{damagedTable, fmt.Sprintf("the flags of the table are %#x", f.table.Flags)}
	}
	for _, name := range slices.Sorted(maps.Keys(want.sets)) {
		if d := changed(damagedSet, "set "+name, f.sets[name], want.sets[name]); d != nil {
			return d
		}
	}
	for _, name := range slices.Sorted(maps.Keys(want.counters)) {
		if d := changed(damagedCounter, "counter "+name, f.counters[name], want.counters[name]); d != nil {
			return d
		}
	}
	for _, name := range slices.Sorted(maps.Keys(want.bases)) {
		found, base := f.bases[name], want.bases[name]
		if d := changed(damagedChain, "chain "+name, found.Handle, base.Handle); d != nil {
			return d
		}
		if found.Policy != base.Policy {
			return &damage{damagedChain, "the policy of chain " + name + " was changed"}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(f.rules)) {
		if ids, known := want.rules[name]; known && !slices.Equal(f.rules[name], ids) {
			return &damage{damagedRule, "the rules of chain " + name + " were changed"}
		}
	}
	return nil
}

// changed compares the handles of an object. 0 stands for no object.
func changed(kind DamageKind, object string, found, want uint64) *damage {
	switch found {
	case want:
		return nil
	case 0:
		return &damage{kind, object + " was deleted"}
	}
	return &damage{kind, object + " was replaced"}
}
