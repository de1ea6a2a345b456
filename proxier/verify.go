package proxier

import (
	"fmt"
	"maps"
	"slices"

	"github.com/nftproxy/nftproxy/nft"
)

// Every program on the host that commits to nf_tables moves the generation.
// Most commits do not touch our table: kubelet, CNI plugins and firewalls commit
// all the time. So a moved generation makes the backend verify the table, which
// costs a fraction of a millisecond, and only damage makes it write anything.
//
// Verification reads handles, which the kernel never gives twice, and the number
// of rows where the kernel reports it, or else a sample of the rows. It does not find a
// single row that was deleted or changed where the number of rows is the same or
// unknown: the scrubber does (see scrub).

// damage is a change to our table by another program. It is an error.
type damage struct {
	kind damageKind
	what string // a sentence without its end: "set service-ips was deleted"
}

// damageKind is the kind of object that was changed. It is a label of metrics.
type damageKind string

// The kinds of damage.
const (
	damagedTable    damageKind = "table"    // deleted, or replaced
	damagedSet      damageKind = "set"      // deleted, or replaced
	damagedChain    damageKind = "chain"    // base chain deleted, replaced or changed
	damagedRule     damageKind = "rule"     // rules added, deleted or replaced
	damagedRows     damageKind = "rows"     // set flushed, or rows added or deleted
	damagedRow      damageKind = "row"      // single rows deleted or changed, found by the scrubber
	damagedAffinity damageKind = "affinity" // chain of a service port with session affinity changed
)

// damageKinds are all of them.
var damageKinds = []damageKind{
	damagedTable, damagedSet, damagedChain, damagedRule, damagedRows, damagedRow, damagedAffinity,
}

// Error says what another program changed.
func (d *damage) Error() string { return "another program changed the table: " + d.what }

// fingerprint is made of the numbers that the kernel gives to objects, none of
// which it gives twice.
type fingerprint struct {
	table  nft.FoundTable
	sets   map[string]uint64         // handles by name
	counts map[string]int            // of rows, by set; not part of what is compared
	bases  map[string]nft.FoundChain // base chains of the program
	rules  map[string][]uint64       // handles of the rules, by chain of the program and balancer
}

// verify reads the table after the generation moved. The error is a *damage if
// the table is not as it was committed.
func (b *Backend) verify() error {
	var found *damage
	now, err := b.kernel.Snapshot(func() error {
		f, err := b.readFingerprint(b.knownChains())
		if err != nil {
			return err
		}
		if found = f.compare(b.fingerprint); found == nil {
			found = b.compareCounts(f)
		}
		if found == nil {
			found, err = b.checkSamples(f)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("verify %s: %w", b.have.table, err)
	}
	b.generation.found(now)
	if found != nil {
		return found
	}
	b.verified = b.generation.foreign
	return nil
}

// readFingerprint reads the fingerprint of the table with the rules of these
// chains.
func (b *Backend) readFingerprint(chains []string) (*fingerprint, error) {
	table := b.have.table
	f := &fingerprint{
		sets: make(map[string]uint64), counts: make(map[string]int),
		bases: make(map[string]nft.FoundChain), rules: make(map[string][]uint64),
	}
	var err error
	var exists bool
	if f.table, exists, err = b.kernel.FindTable(table); err != nil || !exists {
		return f, err
	}
	sets, err := b.kernel.Sets(table)
	if err != nil {
		return nil, err
	}
	known := b.knownSets()
	for _, s := range sets {
		if _, ok := known[s.Name]; ok {
			f.sets[s.Name], f.counts[s.Name] = s.Handle, s.Count
		}
	}
	for _, c := range table.Chains {
		if c.Hook == nil {
			continue
		}
		found, ok, err := b.kernel.FindChain(table, c.Name)
		if err != nil {
			return nil, err
		}
		if ok {
			f.bases[c.Name] = found
		}
	}
	for _, chain := range chains {
		if f.rules[chain], err = b.kernel.RuleHandles(table, chain); err != nil {
			return nil, err
		}
	}
	return f, nil
}

// knownSets returns the sets that the table has, by name.
func (b *Backend) knownSets() map[string]*nft.Set {
	known := make(map[string]*nft.Set, len(b.have.table.Sets)+len(b.have.affinity))
	for _, s := range b.have.table.Sets {
		known[s.Name] = s
	}
	for s := range b.have.affinity {
		known[s.Name] = s
	}
	return known
}

// maxVerifiedBalancers is the number of balancers that are verified at a time. If
// there are more, the scrubber reads the others.
const maxVerifiedBalancers = 32

// knownChains returns the names of the chains of the program and of some balancers.
func (b *Backend) knownChains() []string {
	names := make([]string, 0, len(b.have.table.Chains)+maxVerifiedBalancers)
	for _, c := range b.have.table.Chains {
		names = append(names, c.Name)
	}
	for name := range b.have.balancers { // in an order that differs each time
		if len(names) == cap(names) {
			break
		}
		names = append(names, name)
	}
	return names
}

// compare returns what differs between the fingerprint that was found and the one
// of the table as it was committed, nil if nothing does.
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
		if handles, known := want.rules[name]; known && !slices.Equal(f.rules[name], handles) {
			return &damage{damagedRule, "the rules of chain " + name + " were changed"}
		}
	}
	return nil
}

// changed compares the handles of an object, of which 0 is no object.
func changed(kind damageKind, object string, found, want uint64) *damage {
	switch found {
	case want:
		return nil
	case 0:
		return &damage{kind, object + " was deleted"}
	}
	return &damage{kind, object + " was replaced"}
}

// compareCounts compares the numbers of rows, as far as the kernel reports them.
func (b *Backend) compareCounts(f *fingerprint) *damage {
	for _, s := range b.have.table.Sets {
		if found, want := f.counts[s.Name], b.have.rows[s.Name]; found >= 0 && found != want {
			return &damage{damagedRows, fmt.Sprintf("set %s has %d rows, not %d", s.Name, found, want)}
		}
	}
	return nil
}

// checkSamples reads a few rows of each set that has any and of which the kernel
// does not report the number, so that a set that was flushed is found there too.
func (b *Backend) checkSamples(f *fingerprint) (*damage, error) {
	for _, set := range b.have.table.Sets {
		if f.counts[set.Name] >= 0 {
			continue
		}
		rows := b.samplesOf(set)
		if len(rows) == 0 {
			continue
		}
		found, err := b.kernel.FindRows(b.have.table, rows)
		if err != nil {
			return nil, err
		}
		for i, r := range found {
			switch {
			case r.Set == nil:
				return &damage{damagedRows, fmt.Sprintf("row %s was deleted", rows[i])}, nil
			case !r.Matches(rows[i]):
				return &damage{damagedRows, fmt.Sprintf("row %s was changed to %s", rows[i], r)}, nil
			}
		}
	}
	return nil, nil
}

// samplesOf returns the samples of a set that has rows. If those that were kept
// are gone by now, it finds others.
func (b *Backend) samplesOf(set *nft.Set) []nft.Row {
	if b.have.rows[set.Name] == 0 {
		return nil
	}
	if rows := b.have.samples[set]; len(rows) > 0 {
		return rows
	}
	for _, r := range b.have.nodeRows {
		if r.Set == set {
			b.have.samples[set] = []nft.Row{r}
			return b.have.samples[set]
		}
	}
	var rows []nft.Row
	for _, p := range b.ports {
		rows = b.render.rows(rows[:0], p.committed)
		if i := slices.IndexFunc(rows, func(r nft.Row) bool { return r.Set == set }); i >= 0 {
			b.have.samples[set] = []nft.Row{rows[i]}
			break
		}
	}
	return b.have.samples[set]
}

// observe records the fingerprint of the table after everything was written, or
// the program changed.
func (b *Backend) observe() error {
	var chains []*nft.Chain
	chains = append(chains, b.have.table.Chains...)
	for _, use := range b.have.balancers {
		chains = append(chains, use.chain(b.layout, b.render.mark))
	}
	return b.observeChains(chains, &fingerprint{})
}

// observeChange records what a committed transaction changed in the fingerprint.
func (b *Backend) observeChange(tx *transaction) error {
	switch {
	case !tx.changesProgram():
		return nil
	case tx.table != nil || b.fingerprint == nil:
		return b.observe()
	}
	var chains []*nft.Chain
	for _, bal := range tx.balancers {
		chains = append(chains, bal.chain(b.layout, b.render.mark))
	}
	return b.observeChains(chains, b.fingerprint)
}

// observeChains reads the fingerprint of the table with the rules of these chains,
// and keeps the rules of the other chains of the fingerprint before. Another
// program may have committed since the chains were written, so their contents are
// compared with what was written.
func (b *Backend) observeChains(chains []*nft.Chain, before *fingerprint) error {
	var names []string
	for _, c := range chains {
		names = append(names, c.Name)
	}
	var found *fingerprint
	_, err := b.kernel.Snapshot(func() (err error) {
		if found, err = b.readFingerprint(names); err != nil {
			return err
		}
		if d := found.compare(before); before.table.Handle != 0 && d != nil {
			return d
		}
		for _, c := range chains {
			if err := b.checkRules(damagedRule, c); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		err = fmt.Errorf("verify %s after writing it: %w", b.have.table, err)
		b.doubt(err.Error())
		return err
	}
	for name, handles := range before.rules {
		if _, read := found.rules[name]; !read {
			found.rules[name] = handles
		}
	}
	b.fingerprint = found
	return nil
}

// checkRules reads the rules of a chain and compares them with those that it has.
// The error is a *damage if they differ.
func (b *Backend) checkRules(kind damageKind, c *nft.Chain) error {
	found, err := b.kernel.Rules(b.have.table, c.Name)
	if err != nil {
		return err
	}
	return b.compareRules(kind, c, found)
}

// compareRules compares the rules of a chain that were found with those that the
// chain has. The error is a *damage.
func (b *Backend) compareRules(kind damageKind, c *nft.Chain, found []nft.FoundRule) error {
	same := slices.EqualFunc(found, c.Rules, func(f nft.FoundRule, r nft.Rule) bool {
		return f.Equal(r.Content(b.layout.family))
	})
	if !same {
		return &damage{kind, "the rules of chain " + c.Name + " were changed"}
	}
	return nil
}
