package table

import (
	"maps"
	"slices"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
)

// tableState determines how a rewrite replaces the table in the kernel.
type tableState uint8

const (
	// tableUnused means that there is no table, or that no packet uses it. It
	// is written in several transactions. The last one contains the base
	// chains, so that packets see nothing or everything.
	tableUnused tableState = iota
	// tableOurs means that the table has our sets and base chains. Its rows and
	// rules are replaced in one transaction. The affinity sets stay.
	tableOurs
	// tableForeign means that the table has another form, such as that of
	// kube-proxy. It is deleted and written in one transaction.
	tableForeign
)

// String returns the state for the log.
func (s tableState) String() string {
	return [...]string{"unused", "ours", "foreign"}[s]
}

// acceptPolicy is the policy accept of a base chain (NF_ACCEPT in
// linux/netfilter.h).
const acceptPolicy = 1

// inspection is what the kernel has under the table's name.
type inspection struct {
	exists bool
	handle uint64 // of the table; 0 if it does not exist
	seen   int    // observed.seen
	// begun reports whether the first of several transactions replaced the
	// table that was found. handle then identifies the new table.
	begun  bool
	state  tableState
	sets   []string // names of the sets
	chains []string // names of the chains
	others []object // chains, sets and counters that are not part of the program
	// counted are the rows of a table of ours that count packets.
	counted countedRows
}

func (i inspection) equal(o inspection) bool {
	return i.state == o.state && slices.Equal(i.others, o.others) && slices.Equal(i.sets, o.sets) &&
		maps.Equal(i.counted, o.counted)
}

// inspect reads what the kernel has under the table's name. The result is of
// the generation that inspect records, or of a later one.
func (t *Table) inspect(table *nft.Table) (found inspection, err error) {
	err = t.observed.read(func() (now uint32, err error) {
		if now, err = t.kernel.Generation(); err == nil {
			found, err = t.readTable(table)
		}
		return now, err
	})
	found.seen = t.observed.seen
	return found, err
}

func (t *Table) readTable(table *nft.Table) (found inspection, err error) {
	there, exists, err := t.kernel.FindTable(table)
	if found.exists, found.handle = exists, there.Handle; err != nil || !exists {
		return found, err
	}
	sets, err := t.kernel.Sets(table)
	if err != nil {
		return found, err
	}
	chains, err := t.kernel.Chains(table)
	if err != nil {
		return found, err
	}
	counters, err := t.kernel.Counters(table)
	if err != nil {
		return found, err
	}
	for _, s := range sets {
		found.sets = append(found.sets, s.Name)
	}
	for _, c := range chains {
		found.chains = append(found.chains, c.Name)
	}
	found.others = append(otherObjects(table, sets, chains), otherCounters(table, counters)...)
	found.state = compareTable(table, t.otherSets(), sets, chains)
	if found.state == tableOurs {
		found.counted, err = t.readCounted(table)
	}
	return found, err
}

// otherSets returns the sets that a table of ours can have and that are not
// part of a program without source ranges.
func (t *Table) otherSets() []*nft.Set {
	all := func(*nft.Set) bool { return true }
	return slices.Concat(t.rules.AffinitySets(), t.rules.SourceSets(all))
}

// otherObjects returns the chains and sets that were found and are not part of
// the program.
func otherObjects(program *nft.Table, sets []nft.FoundSet, chains []nft.FoundChain) (others []object) {
	for _, s := range sets {
		if !slices.ContainsFunc(program.Sets, func(want *nft.Set) bool { return want.Name == s.Name }) {
			others = append(others, object{kindSet, s.Name})
		}
	}
	for _, c := range chains {
		if findChain(program, c.Name) == nil && !isForeignBase(c) {
			others = append(others, object{kindChain, c.Name})
		}
	}
	return others
}

// otherCounters returns the counters that were found and are not part of the
// program.
func otherCounters(program *nft.Table, counters []nft.FoundCounter) (others []object) {
	for _, c := range counters {
		if !slices.ContainsFunc(program.Counters, func(want *nft.Counter) bool { return want.Name == c.Name }) {
			others = append(others, object{kindCounter, c.Name})
		}
	}
	return others
}

func findChain(program *nft.Table, name string) *nft.Chain {
	i := slices.IndexFunc(program.Chains, func(c *nft.Chain) bool { return c.Name == name })
	if i < 0 {
		return nil
	}
	return program.Chains[i]
}

// compareTable compares the sets and chains that were found with the program
// and the other sets that the table can have.
func compareTable(program *nft.Table, other []*nft.Set, sets []nft.FoundSet, chains []nft.FoundChain) tableState {
	hooked, bases, same := compareChains(program, chains)
	switch {
	case !hooked:
		return tableUnused
	case !bases || !same || !compareSets(slices.Concat(program.Sets, other), sets):
		return tableForeign
	}
	return tableOurs
}

// compareChains reports whether packets use any of the chains, whether all base
// chains of the program exist, and whether the chains fit the program.
func compareChains(program *nft.Table, chains []nft.FoundChain) (hooked, bases, same bool) {
	missing := 0
	for _, want := range program.Chains {
		if want.Hook != nil {
			missing++
		}
	}
	same = true
	for _, c := range chains {
		hooked = hooked || c.Hook != nil
		want := findChain(program, c.Name)
		switch {
		case want == nil:
			same = same && !isForeignBase(c)
		case !c.HookMatches(want):
			same = false
		case c.Hook != nil:
			same = same && c.Policy == acceptPolicy // adding a chain that exists keeps its policy
			missing--
		}
	}
	return hooked, missing == 0, same
}

// compareSets reports whether the sets that were found are of our table, and
// have the form that they should have.
func compareSets(want []*nft.Set, sets []nft.FoundSet) bool {
	found := make(map[string]nft.FoundSet)
	for _, s := range sets {
		found[s.Name] = s
	}
	for _, s := range want {
		if have, ok := found[s.Name]; ok && !have.Matches(s) {
			return false
		}
	}
	_, ours := found[ruleset.OwnSet]
	return ours
}
