package table

import (
	"fmt"
	"slices"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
)

// Difference is a difference between a table as it should be and the one in the
// kernel.
type Difference struct {
	Family nft.Family     `json:"family"` // set by Diff
	Kind   DifferenceKind `json:"kind"`
	// Object is the row, chain, set or counter in nft syntax: as it should be,
	// or as it is if it is extra.
	Object string `json:"object"`
	// Found is what a changed object is instead, if that is known.
	Found string `json:"found,omitempty"`
	// ServicePort is the namespace/name:port that demands the object, "" for
	// other objects.
	ServicePort string `json:"servicePort,omitempty"`

	damage    damage // if another program caused the difference
	object    object
	chain     *nft.Chain // whose rules differ
	want, has nft.Row    // has.Set is nil if there is no such row
}

// DifferenceKind is the kind of a difference.
type DifferenceKind string

// Kinds of differences.
const (
	Missing DifferenceKind = "missing"
	Changed DifferenceKind = "changed"
	Extra   DifferenceKind = "extra"
)

// audit compares a table with the kernel in steps. Between steps, the Table may
// change.
//
// If desired is true, it compares what the source wants, reads all chains and
// rules, and finds extra objects. Otherwise, it compares what was committed,
// and the rules that changed since they were last compared.
type audit struct {
	table   *Table
	desired bool
	found   []Difference // in the present step
	kernel  *structure   // as it was last read
	// left is the number of rows, or objects that take as long, that the
	// present step may still compare, compared the number of rows that it has
	// compared.
	left, compared int

	ports []*portState // still to be compared
	// rows are the rows of plan, the plan of the first service port, that are
	// still to be compared.
	plan *ruleset.Plan
	rows []nft.Row
}

// program compares everything but the chains and rows of service ports.
func (a *audit) program() error {
	t := a.table
	rows := slices.Concat(t.committed.nodeRows, t.committed.balancerRows(t.rules))
	if id := t.committed.reservedIDs; id != 0 {
		rows = append(rows, t.rules.ReservedIDs(id))
	}
	_, err := t.kernel.Snapshot(func() error {
		if err := a.structure(t.programChains(len(t.committed.balancers))); err != nil || !a.kernel.exists() {
			return err
		}
		return a.compareRows("", rows)
	})
	return err
}

// structure compares the sets, counters and chains, and the rules of these
// chains of the program and balancers.
func (a *audit) structure(chains []*nft.Chain) error {
	t := a.table
	s, err := t.readStructure(t.committed.program, a.desired)
	if err != nil {
		return err
	}
	want, before := t.committed.structure(t.rules, a.desired), t.observed.structure
	if a.desired { // the table may be in doubt
		before = nil
		chains = slices.DeleteFunc(chains, func(c *nft.Chain) bool { return !s.has(object{kindChain, c.Name}) })
	}
	a.kernel, a.found, a.compared = s, s.compare(want, before), 0
	if !s.exists() {
		return nil
	}
	names := make([]string, len(chains))
	for i, c := range chains {
		names[i] = c.Name
	}
	err = a.chains(damagedRule, "", names, func() []*nft.Chain { return chains })
	if err == nil && a.desired {
		a.extraObjects(want)
	}
	return err
}

// extraObjects finds objects that neither the program nor a service port has.
func (a *audit) extraObjects(want *nft.Table) {
	t, s := a.table, a.kernel
	for _, plan := range t.committed.plans {
		for _, name := range t.rules.ChainNames(plan) {
			delete(s.objects, object{kindChain, name})
		}
	}
	for _, o := range s.extra(want) {
		if !t.unused.has(o) {
			a.found = append(a.found, Difference{Kind: Extra, Object: o.String()})
		}
	}
}

// port compares the chains of the first service port and then its rows, as many
// as the step may. If the plan changes between two steps, it begins again.
func (a *audit) port() error {
	t, p, dirty := a.table, a.ports[0], false
	if a.desired {
		_, dirty = t.desired.dirty[p.service]
	}
	if a.plan == nil || !dirty && a.plan != t.committed.plans[p] {
		if a.plan = t.committed.plans[p]; dirty {
			a.plan = t.previewPlan(p, t.ids.preview())
		}
		a.rows = t.rules.Rows(nil, a.plan)
		if r := t.refusals[p]; a.desired && r.refused {
			what := "change that cannot be written: " + r.why
			a.found = append(a.found, Difference{Kind: Missing, Object: what, ServicePort: p.name()})
		}
		names := t.rules.ChainNames(a.plan)
		a.left -= len(names) * chainCost
		err := a.chains(damagedAffinity, p.name(), names, func() []*nft.Chain { return t.rules.Chains(a.plan) })
		if err != nil {
			return err
		}
	}
	n := min(len(a.rows), max(a.left, 1))
	if err := a.compareRows(p.name(), a.rows[:n]); err != nil {
		return err
	}
	if a.rows = a.rows[n:]; len(a.rows) == 0 {
		a.ports, a.plan = a.ports[1:], nil
	}
	return nil
}

// chainCost is the number of rows that take as long as a chain of session
// affinity.
const chainCost = 16

// chains compares the rules of the chains with these names.
func (a *audit) chains(kind DamageKind, owner string, names []string, chains func() []*nft.Chain) error {
	if len(names) == 0 {
		return nil
	}
	t, before, ids := a.table, len(a.found), make(ruleIDs, len(names))
	changed := func(name string) bool { return !t.observed.rules.same(name, ids[name]) }
	_, err := t.kernel.Snapshot(func() (err error) {
		a.found = a.found[:before]
		if !a.desired {
			for _, name := range names {
				if ids[name], err = t.kernel.RuleIDs(t.committed.program, name); err != nil {
					return err
				}
			}
			if !slices.ContainsFunc(names, changed) {
				return nil
			}
		}
		for _, c := range chains() {
			same, err := a.rules(kind, owner, c)
			if err != nil {
				return err
			}
			if same && !a.desired {
				t.observed.rules[c.Name] = ids[c.Name]
			}
		}
		return nil
	})
	return err
}

// rules compares the rules of a chain.
func (a *audit) rules(kind DamageKind, owner string, c *nft.Chain) (same bool, err error) {
	found, err := a.table.kernel.Rules(a.table.committed.program, c.Name)
	if err != nil {
		return false, err
	}
	d := Difference{
		Kind: Changed, Object: "rules of chain " + c.Name, ServicePort: owner,
		damage: damage{kind, "the rules of chain " + c.Name + " were changed"}, chain: c,
	}
	before := len(a.found)
	if len(found) != len(c.Rules) {
		a.found = append(a.found, d)
		return false, nil
	}
	for i, r := range c.Rules {
		if !found[i].Equal(r) {
			d.Object = fmt.Sprintf("rule of chain %s: %s", c.Name, r.Text(a.table.Family()))
			a.found = append(a.found, d)
		}
	}
	return len(a.found) == before, nil
}

// compareRows reads rows by key. The rows of a list that belong to one set are
// read together.
func (a *audit) compareRows(owner string, rows []nft.Row) error {
	a.left, a.compared = a.left-len(rows), a.compared+len(rows)
	for len(rows) > 0 {
		n := 1
		for n < len(rows) && rows[n].Set == rows[0].Set {
			n++
		}
		found, err := a.table.kernel.FindRows(a.table.committed.program, rows[:n])
		if err != nil {
			return err
		}
		for i, r := range found {
			if !r.Matches(rows[i]) {
				a.found = append(a.found, wrongRow(owner, rows[i], r))
			}
		}
		rows = rows[n:]
	}
	return nil
}

// wrongRow returns the difference of a row that was deleted or changed.
func wrongRow(owner string, want, has nft.Row) Difference {
	d := Difference{Kind: Missing, Object: "row " + want.String(), ServicePort: owner, want: want, has: has}
	what := d.Object
	if owner != "" {
		what += " of Service port " + owner
	}
	d.damage = damage{damagedRow, what + " was deleted"}
	if has.Set != nil {
		d.Kind, d.Found = Changed, "row "+has.String()
		d.damage.what = what + " was changed to " + d.Found
	}
	return d
}

// Every transaction on the host changes the generation of the ruleset. Most do
// not change our table: kubelet, CNI plugins and firewalls commit all the time.
// Therefore a new generation makes a Table verify its table, which takes a
// fraction of a millisecond. Only damage makes it write anything.
//
// Verification reads handles, which the kernel never reuses, hashes of rules,
// and the number of rows where the kernel reports it (Linux 6.15), or else a
// sample of the rows. It does not find a single row that was deleted or changed
// if the number of rows is the same or unknown. The scrubber does (see
// check.go).

// verify reads the table. The error is a *damage if the table is not as it was
// committed.
func (t *Table) verify() error {
	a := audit{table: t}
	err := t.observed.read(func() (uint32, error) {
		return t.kernel.Snapshot(func() error {
			if err := a.structure(t.programChains(maxVerifiedBalancers)); err != nil || len(a.found) > 0 {
				return err
			}
			return a.sampleRows()
		})
	})
	if err != nil {
		return fmt.Errorf("verify table %s: %w", t.name(), err)
	}
	if len(a.found) > 0 {
		return &a.found[0].damage
	}
	t.observed.verified = t.observed.seen
	return nil
}

// sampleRows compares the number of rows of each set. If the kernel does not
// report it, it reads a few rows, to find sets that were flushed.
func (a *audit) sampleRows() error {
	t := a.table
	for _, set := range t.committed.program.Sets {
		has, want := a.kernel.objects[object{kindSet, set.Name}].set.Count, t.committed.rows[set.Name]
		if has >= 0 && has != want {
			what := fmt.Sprintf("set %s has %d rows, not %d", set.Name, has, want)
			a.found = []Difference{{damage: damage{what: what}}}
		} else if has < 0 {
			if err := a.compareRows("", t.committed.samplesOf(t.rules, set)); err != nil {
				return err
			}
		}
		if len(a.found) > 0 {
			a.found[0].damage.kind = damagedRows
			break
		}
	}
	return nil
}

// maxVerifiedBalancers is the number of balancers that are verified at a time.
// If there are more, the scrubber reads the others.
const maxVerifiedBalancers = 32

// programChains returns the chains of the program, and up to n balancers, in a
// different order each time.
func (t *Table) programChains(n int) []*nft.Chain {
	chains := slices.Clone(t.committed.program.Chains)
	for class := range t.committed.balancers {
		if n--; n < 0 {
			break
		}
		chain, _ := t.rules.Balancer(class)
		chains = append(chains, chain)
	}
	return chains
}

// ruleIDs are the identities of the rules of chains when they were last
// compared with what was committed. A rule that replaces another one keeps its
// handle, but not its identity.
type ruleIDs map[string][]nft.RuleID

// same reports whether a chain still has the rules that were compared.
func (r ruleIDs) same(chain string, now []nft.RuleID) bool {
	before, known := r[chain]
	return known && slices.Equal(before, now)
}

// observe compares what a transaction wrote of the structure and of the rules
// that verification reads: another program may have committed since. It records
// them for the next verification.
func (t *Table) observe(tx *transaction) error {
	if tx.program == nil && len(tx.balancers) == 0 && len(tx.affinity) == 0 {
		return nil
	}
	if tx.whole {
		t.observed.structure, t.observed.rules = nil, make(ruleIDs)
	}
	var chains []*nft.Chain
	for class := range tx.balancers {
		chain, _ := t.rules.Balancer(class)
		chains = append(chains, chain)
	}
	if tx.program != nil {
		chains = append(chains, t.programChains(0)...)
	}
	a := audit{table: t}
	err := t.observed.generation.exclude(func() error {
		_, err := t.kernel.Snapshot(func() error { return a.structure(chains) })
		return err
	})
	if err == nil && len(a.found) > 0 {
		err = &a.found[0].damage
	}
	if err != nil {
		err = fmt.Errorf("verify table %s after writing it: %w", t.name(), err)
		t.doubt(rewriteFailure, err.Error())
		return err
	}
	for _, o := range a.kernel.extra(t.committed.structure(t.rules, false)) {
		delete(a.kernel.objects, o) // it can be deleted, and added again
	}
	t.observed.structure = a.kernel
	return nil
}
