package table

import (
	"fmt"
	"maps"
	"slices"

	"github.com/nftproxy/nftproxy/nft"
)

// program compares the table without the rows of Services.
func (d *Diff) program(step *DiffStep) error {
	t := d.table
	found, ok, err := t.kernel.FindTable(t.committed.program)
	if err != nil {
		return err
	}
	if !ok {
		step.add(Missing, t.committed.program.String())
		step.Done = true
		return nil
	}
	if f := t.observed.fingerprint; f != nil && found.Flags != f.table.Flags {
		step.Differences = append(step.Differences, Difference{
			Kind: Changed, Object: "flags of the table", Found: fmt.Sprintf("%#x", found.Flags),
		})
	}
	for _, compare := range []func(*DiffStep) error{d.compareSets, d.compareCounters, d.compareChains} {
		if err := compare(step); err != nil {
			return err
		}
	}
	rows := slices.Clone(t.committed.nodeRows)
	if id := t.committed.reservedIDs; id != 0 {
		rows = append(rows, t.rules.ReservedIDs(id))
	}
	return d.compareRows(step, "", rows)
}

// compareSets compares the sets and maps, without their rows.
func (d *Diff) compareSets(step *DiffStep) error {
	t := d.table
	sets, err := t.kernel.Sets(t.committed.program)
	if err != nil {
		return err
	}
	left := t.knownSets()
	for _, s := range sets {
		switch want := left[s.Name]; {
		case want == nil && !t.unused.has(object{kindSet, s.Name}):
			step.add(Extra, "set "+s.Name)
		case want != nil && !s.Matches(want):
			step.add(Changed, "type of set "+s.Name)
		}
		delete(left, s.Name)
	}
	for _, name := range slices.Sorted(maps.Keys(left)) {
		step.add(Missing, "set "+name)
	}
	return nil
}

// compareCounters compares the named counters.
func (d *Diff) compareCounters(step *DiffStep) error {
	t := d.table
	counters, err := t.kernel.Counters(t.committed.program)
	if err != nil {
		return err
	}
	for _, c := range t.committed.program.Counters {
		if !slices.ContainsFunc(counters, func(f nft.FoundCounter) bool { return f.Name == c.Name }) {
			step.add(Missing, "counter "+c.Name)
		}
	}
	for _, o := range otherCounters(t.committed.program, counters) {
		if !t.unused.has(o) {
			step.add(Extra, "counter "+o.name)
		}
	}
	return nil
}

// compareChains compares the chains of the program and the balancers.
func (d *Diff) compareChains(step *DiffStep) error {
	t := d.table
	chains, err := t.kernel.Chains(t.committed.program)
	if err != nil {
		return err
	}
	found := make(map[string]nft.FoundChain, len(chains))
	for _, c := range chains {
		found[c.Name] = c
	}
	wanted := slices.Clone(t.committed.program.Chains)
	for _, name := range slices.Sorted(maps.Keys(t.committed.balancers)) {
		wanted = append(wanted, t.rules.Balancer(name))
	}
	for _, c := range wanted {
		has, exists := found[c.Name]
		switch {
		case !exists:
			step.add(Missing, "chain "+c.Name)
			continue
		case !has.HookMatches(c), c.Hook != nil && has.Policy != acceptPolicy:
			step.add(Changed, "chain "+c.Name)
		}
		if err := d.compareRules(step, "", c); err != nil {
			return err
		}
		delete(found, c.Name)
	}
	d.extraChains(step, found)
	return nil
}

// extraChains finds the chains that neither the program nor a service port has.
func (d *Diff) extraChains(step *DiffStep, found map[string]nft.FoundChain) {
	for _, plan := range d.table.committed.plans {
		for _, name := range d.table.rules.ChainNames(plan) {
			delete(found, name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(found)) {
		if !d.table.unused.has(object{kindChain, name}) {
			step.add(Extra, "chain "+name)
		}
	}
}
