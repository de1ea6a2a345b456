package keep

import (
	"fmt"
	"slices"

	"github.com/nftproxy/nftproxy/nft"
)

// Every transaction on the host changes the generation of the ruleset. Most do
// not change our table: kubelet, CNI plugins and firewalls commit all the time.
// Therefore a new generation makes a Keeper verify its table, which takes a
// fraction of a millisecond. Only damage makes it write anything.
//
// Verification reads handles, which the kernel never reuses, hashes of rules,
// and the number of rows where the kernel reports it (Linux 6.15), or else a
// sample of the rows. It does not find a single row that was deleted or changed
// if the number of rows is the same or unknown. The scrubber does (see
// scrub.go).

// verify reads the table. The error is a *Damage if the table is not as it was
// committed.
func (s *state) verify() error {
	a := audit{state: s}
	err := s.link.read(func() (uint32, error) {
		return s.link.kernel.Snapshot(func() error {
			err := a.compareStructure(s.have.someChains(s.source, maxVerifiedChains))
			if err != nil || len(a.found) > 0 {
				return err
			}
			return a.sampleRows()
		})
	})
	if err != nil {
		return fmt.Errorf("verify table %s: %w", s.link.name(), err)
	}
	if len(a.found) > 0 {
		return &a.found[0].damage
	}
	s.verified, s.suspect = s.link.seen, false
	if s.structure == nil {
		s.recordStructure(a.now)
	}
	return nil
}

// sampleRows compares the number of rows of each set that is not being
// repaired.
func (a *audit) sampleRows() error {
	for _, set := range a.state.have.program.Sets {
		if a.state.damaged.has(set) {
			continue
		}
		count := a.now.objects[object{kindSet, set.Name}].set.Count
		if _, err := a.sampleSet(set, count); err != nil || len(a.found) > 0 {
			return err
		}
	}
	return nil
}

// sampleSet compares the number of rows of a set. If the kernel does not report
// it, it reads a few rows, to find out whether the set was flushed. isHalf
// reports whether at least half of the rows are missing, or half of those that
// it read are missing or changed.
func (a *audit) sampleSet(set *nft.Set, has int) (isHalf bool, err error) {
	before := len(a.found)
	if want := a.state.have.counts[set] + a.state.have.extra[set]; has >= 0 && has != want {
		what := fmt.Sprintf("set %s has %d rows, not %d", set.Name, has, want)
		a.found = append(a.found, Difference{damage: Damage{What: what}})
		isHalf = 2*has <= want
	} else if has < 0 {
		samples := a.state.have.samplesOf(a.state.source, set)
		if err := a.compareRows("", samples); err != nil {
			return false, err
		}
		isHalf = len(samples) > 0 && 2*(len(a.found)-before) >= len(samples)
	}
	for i := range a.found[before:] {
		a.found[before+i].damage.Kind = DamagedRows
	}
	return isHalf, nil
}

// maxVerifiedChains is the number of chains on demand that are verified at a
// time. If there are more, the scrubber reads the others.
const maxVerifiedChains = 32

// observe compares what a transaction wrote of the structure and of the rules
// that verification reads: another program may have committed since. It records
// them for the next verification.
func (s *state) observe(tx *transaction, program bool) error {
	isNew := program || len(tx.demand) > 0 || len(tx.sets) > 0
	if !tx.whole && (!isNew || s.link.batch.Empty()) { // an empty batch found an equal program
		return nil
	}
	if tx.whole {
		s.structure, s.rules = nil, make(ruleIDs)
	}
	for _, name := range tx.replaced {
		if s.structure != nil {
			delete(s.structure.objects, object{kindTimeout, name})
		}
	}
	var chains []*nft.Chain
	for id := range tx.demand {
		chain, _ := s.source.Chain(id)
		chains = append(chains, chain)
	}
	if program {
		chains = append(chains, s.have.program.Chains...)
	}
	a := audit{state: s}
	err := s.link.generation.exclude(func() error {
		_, err := s.link.kernel.Snapshot(func() error { return a.compareStructure(chains) })
		return err
	})
	if err == nil && len(a.found) > 0 {
		err = &a.found[0].damage
	}
	if err != nil {
		s.suspect, s.verified = true, -1 // the next verification finds the damage
		return fmt.Errorf("verify table %s after writing it: %w", s.link.name(), err)
	}
	s.recordStructure(a.now)
	return nil
}

// recordStructure records the structure with which the next verification
// compares, without objects that can be deleted and added again.
func (s *state) recordStructure(now *structure) {
	for _, o := range now.extra(s.have.structure(s.source, false)) {
		delete(now.objects, o)
	}
	s.structure = now
}

// commitGuarded commits the batch if the table is as it was committed. If
// another program committed since the last verification, it verifies the table
// first. The error is a *Damage if the other program changed the table. An
// empty batch is not committed, and nothing is verified.
func (s *state) commitGuarded() error {
	if s.link.batch.Empty() {
		return nil
	}
	if !s.isVerified() {
		if err := s.verify(); err != nil {
			return err
		}
	}
	return s.link.commitUnless(s.verify)
}

// audit compares a table with the kernel in steps. Between steps, the Keeper
// may change.
//
// If want is not nil, it returns what an owner that changed should have: then
// the audit also reads all rules, and finds extra objects. Otherwise, it
// compares what was committed, and the rules that changed since they were last
// compared.
type audit struct {
	state *state
	// all makes the audit read all chains, and compare the forms of objects,
	// not whether they are those that were committed.
	all   bool
	want  func(Owner) Content
	found []Difference // in the present step
	now   *structure   // as it was last read
	only  *damage      // nil for everything
	// left is the number of rows, or objects that take as long, that the
	// present step may still compare, compared the number of rows that it has
	// compared.
	left, compared int

	owners []Owner // still to be compared
	// rows are the rows of content, the content of the first owner, that are
	// still to be compared.
	content Content
	started bool
	version int // of the content
	rows    []nft.Row
}

// program compares everything but the chains and rows of owners.
func (a *audit) program() error {
	a.all = true
	_, err := a.state.link.kernel.Snapshot(func() error {
		chains := a.state.have.someChains(a.state.source, len(a.state.have.chains))
		if err := a.compareStructure(chains); err != nil || !a.now.exists() {
			return err
		}
		return a.compareRows("", a.state.have.ownRows(a.state.source))
	})
	return err
}

// compareStructure compares the sets, counters and chains, and the rules of
// these chains of the program and chains on demand.
func (a *audit) compareStructure(chains []*nft.Chain) error {
	s, err := readStructure(a.state.link.kernel, a.state.have.program, a.all)
	if err != nil {
		return err
	}
	want, before := a.state.have.structure(a.state.source, a.all), a.state.structure
	if a.all {
		before = nil
	}
	if a.want != nil { // the table may be in doubt
		chains = slices.DeleteFunc(chains, func(c *nft.Chain) bool { return !s.has(object{kindChain, c.Name}) })
	}
	a.now, a.found, a.compared = s, s.compare(want, before), 0
	if !s.exists() {
		return nil
	}
	names := make([]string, len(chains))
	for i, c := range chains {
		names[i] = c.Name
	}
	err = a.chains(DamagedRule, "", names, func() []*nft.Chain { return chains })
	switch {
	case err != nil:
	case a.want != nil:
		a.extraObjects(want)
	case a.all:
		a.extraBaseChains(want)
	}
	return err
}

// extraBaseChains finds base chains of other programs in the table.
func (a *audit) extraBaseChains(want *nft.Table) {
	for _, o := range a.now.extra(want) {
		if a.now.isForeignBase(o) && !a.state.leftovers.has(o) {
			d := Difference{Kind: Extra, Object: o.String(), object: o}
			d.damage = Damage{DamagedChain, "base " + o.String() + " was added"}
			a.found = append(a.found, d)
		}
	}
}

// extraObjects finds objects that neither the program nor an owner has.
func (a *audit) extraObjects(want *nft.Table) {
	for o := range a.state.source.Owners(false) {
		if have := o.Kept().have; have != nil {
			for _, name := range have.ChainNames() {
				delete(a.now.objects, object{kindChain, name})
			}
		}
	}
	for _, o := range a.now.extra(want) {
		if !a.state.leftovers.has(o) {
			a.found = append(a.found, Difference{Kind: Extra, Object: o.String()})
		}
	}
}

// owner compares the chains of the first owner and then its rows, as many as
// the step may. If the content changes between two steps, it begins again.
func (a *audit) owner() error {
	o := a.owners[0]
	kept := o.Kept()
	changed := a.want != nil && kept.pending
	if !a.started || !changed && a.version != kept.version {
		if a.content = kept.have; changed {
			a.content = a.want(o)
		}
		a.started, a.version = true, kept.version
		if err := a.begin(o.String(), kept, changed); err != nil {
			return err
		}
	}
	// The last rows come first: the others lead to them.
	n := len(a.rows) - min(len(a.rows), max(a.left, 1))
	if err := a.compareRows(o.String(), a.rows[n:]); err != nil {
		return err
	}
	if a.rows = a.rows[:n]; n == 0 {
		a.owners, a.content, a.started = a.owners[1:], nil, false
	}
	return nil
}

// begin begins to compare the content of an owner: with its chains.
func (a *audit) begin(owner string, kept *Kept, changed bool) error {
	a.rows = nil
	if why, refused := kept.Refused(); a.want != nil && refused {
		what := "change that cannot be written: " + why
		a.found = append(a.found, Difference{Kind: Missing, Object: what, Owner: owner})
	}
	switch {
	case changed:
		a.rows = rowsOf(nil, a.content)
	case a.only == nil || len(a.only.sets) > 0:
		a.rows = kept.rows(nil)
	}
	if a.only != nil {
		a.left -= len(a.rows) / computedRows
		a.rows = a.only.rows(a.rows)
	}
	if a.content == nil {
		return nil
	}
	names := a.content.ChainNames()
	if a.only != nil && !a.only.chains {
		return nil
	}
	a.left -= len(names) * chainCost
	return a.chains(DamagedAffinity, owner, names, a.content.Chains)
}

const (
	// chainCost is the number of rows that take as long as a chain of an owner.
	chainCost = 16
	// computedRows is the number of rows that are computed in the time in which
	// one is read.
	computedRows = 16
)

// chains compares the rules of the chains with these names.
func (a *audit) chains(kind DamageKind, owner string, names []string, chains func() []*nft.Chain) error {
	if len(names) == 0 {
		return nil
	}
	before, ids := len(a.found), make(ruleIDs, len(names))
	changed := func(name string) bool { return !a.state.rules.same(name, ids[name]) }
	_, err := a.state.link.kernel.Snapshot(func() (err error) {
		a.found = a.found[:before]
		if a.want == nil {
			for _, name := range names {
				if ids[name], err = a.state.link.kernel.RuleIDs(a.state.have.program, name); err != nil {
					return err
				}
			}
			if !slices.ContainsFunc(names, changed) {
				return nil
			}
		}
		for _, c := range chains() {
			same, err := a.compareRules(kind, owner, c)
			if err != nil {
				return err
			}
			if same && a.want == nil {
				a.state.rules[c.Name] = ids[c.Name]
			}
		}
		return nil
	})
	return err
}

// rules compares the rules of a chain.
func (a *audit) compareRules(kind DamageKind, owner string, c *nft.Chain) (same bool, err error) {
	found, err := a.state.link.kernel.Rules(a.state.have.program, c.Name)
	if err != nil {
		return false, err
	}
	d := Difference{
		Kind: Changed, Object: "rules of chain " + c.Name, Owner: owner,
		damage: Damage{kind, "the rules of chain " + c.Name + " were changed"}, chain: c,
	}
	before := len(a.found)
	if len(found) != len(c.Rules) {
		a.found = append(a.found, d)
		return false, nil
	}
	for i, r := range c.Rules {
		if !found[i].Equal(r) {
			d.Object = fmt.Sprintf("rule of chain %s: %s", c.Name, r.Text(a.state.link.table.Family))
			a.found = append(a.found, d)
		}
	}
	return len(a.found) == before, nil
}

// compareRows reads rows by key. The rows of a list that belong to one set are
// read together.
func (a *audit) compareRows(owner string, rows []nft.Row) error {
	a.left, a.compared = a.left-len(rows), a.compared+len(rows)
	return a.eachSet(rows, func(want, found []nft.Row) {
		for i, r := range found {
			switch {
			case r.Matches(want[i]):
			case a.only != nil: // the damage was named before
				a.found = append(a.found, Difference{want: want[i], has: r, damage: Damage{Kind: DamagedRow}})
			default:
				a.found = append(a.found, wrongRow(owner, want[i], r))
			}
		}
	})
}

// eachSet reads rows by key, except for sets that were empty. It calls a
// function for the rows of a list that follow each other and belong to one set.
func (a *audit) eachSet(rows []nft.Row, each func(want, found []nft.Row)) error {
	for len(rows) > 0 {
		n := 1
		for n < len(rows) && rows[n].Set == rows[0].Set {
			n++
		}
		if a.only != nil && a.only.sets[rows[0].Set] {
			each(rows[:n], make([]nft.Row, n))
			rows = rows[n:]
			continue
		}
		found, err := a.state.link.kernel.FindRows(a.state.have.program, rows[:n])
		if err != nil {
			return err
		}
		each(rows[:n], found)
		rows = rows[n:]
	}
	return nil
}

// addExtra records a row that was not committed.
func (a *audit) addExtra(r nft.Row) {
	d := Difference{Kind: Extra, Object: "row " + r.String(), has: r}
	d.damage = Damage{DamagedRows, d.Object + " was added"}
	a.found = append(a.found, d)
}

// wrongRow returns the difference of a row that was deleted or changed.
func wrongRow(owner string, want, has nft.Row) Difference {
	d := Difference{Kind: Missing, Object: "row " + want.String(), Owner: owner, want: want, has: has}
	what := d.Object
	if owner != "" {
		what += " of " + owner
	}
	d.damage = Damage{DamagedRow, what + " was deleted"}
	if has.Set != nil {
		d.Kind, d.Found = Changed, "row "+has.String()
		d.damage.What = what + " was changed to " + d.Found
	}
	return d
}
