package table

import (
	"fmt"
	"slices"

	"github.com/nftproxy/nftproxy/nft"
)

// Every transaction on the host changes the generation of the ruleset. Most do
// not change our table: kubelet, CNI plugins and firewalls commit all the time.
// Therefore a new generation makes a Table verify its table, which takes a
// fraction of a millisecond. Only damage makes it write anything.
//
// Verification reads handles, which the kernel never reuses, hashes of rules,
// and the number of rows where the kernel reports it (Linux 6.15), or else a
// sample of the rows.
// It does not find a single row that was deleted or changed if the number of
// rows is the same or unknown. The scrubber does (see scrub.go).

// verify reads the table. The error is a *damage if the table is not as it was
// committed.
func (t *Table) verify() error {
	var found *damage
	err := t.observed.read(func() (uint32, error) {
		return t.kernel.Snapshot(func() error {
			f, err := t.readFingerprint(t.knownChains())
			if err != nil {
				return err
			}
			if found = f.compare(t.observed.fingerprint); found == nil {
				found = t.compareCounts(f)
			}
			if found == nil {
				found, err = t.checkSamples(f)
			}
			return err
		})
	})
	if err != nil {
		return fmt.Errorf("verify table %s: %w", t.name(), err)
	}
	if found != nil {
		return found
	}
	t.observed.verified = t.observed.seen
	return nil
}

// compareCounts compares the numbers of rows that the kernel reports.
func (t *Table) compareCounts(f *fingerprint) *damage {
	for _, s := range t.committed.program.Sets {
		if found, want := f.counts[s.Name], t.committed.rows[s.Name]; found >= 0 && found != want {
			return &damage{damagedRows, fmt.Sprintf("set %s has %d rows, not %d", s.Name, found, want)}
		}
	}
	return nil
}

// checkSamples reads a few rows of each set whose number of rows the kernel
// does not report, to find sets that were flushed.
func (t *Table) checkSamples(f *fingerprint) (*damage, error) {
	for _, set := range t.committed.program.Sets {
		if f.counts[set.Name] >= 0 {
			continue
		}
		rows := t.samplesOf(set)
		if len(rows) == 0 {
			continue
		}
		found, err := t.kernel.FindRows(t.committed.program, rows)
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

// samplesOf returns samples of a set that has rows. If none are kept, it finds
// new ones.
func (t *Table) samplesOf(set *nft.Set) []nft.Row {
	if t.committed.rows[set.Name] == 0 {
		return nil
	}
	if rows := t.committed.samples[set]; len(rows) > 0 {
		return rows
	}
	for _, r := range t.committed.nodeRows {
		if r.Set == set {
			t.committed.samples[set] = []nft.Row{r}
			return t.committed.samples[set]
		}
	}
	var rows []nft.Row
	for _, plan := range t.committed.plans {
		rows = t.rules.Rows(rows[:0], plan)
		if i := slices.IndexFunc(rows, func(r nft.Row) bool { return r.Set == set }); i >= 0 {
			t.committed.samples[set] = []nft.Row{rows[i]}
			break
		}
	}
	return t.committed.samples[set]
}

// observeAll records the fingerprint of the table after everything was written,
// or after the program changed.
func (t *Table) observeAll() error {
	chains := slices.Clone(t.committed.program.Chains)
	for name := range t.committed.balancers {
		chains = append(chains, t.rules.Balancer(name))
	}
	return t.observeChains(chains, &fingerprint{})
}

// observeChange updates the fingerprint after a transaction was committed.
func (t *Table) observeChange(tx *transaction) error {
	switch {
	case !tx.changesProgram():
		return nil
	case tx.program != nil || t.observed.fingerprint == nil:
		return t.observeAll()
	}
	var chains []*nft.Chain
	for name := range tx.balancers {
		chains = append(chains, t.rules.Balancer(name))
	}
	return t.observeChains(chains, t.observed.fingerprint)
}

// observeChains reads the fingerprint of the table with the rules of these
// chains. It keeps all other rules from the fingerprint before.
// Another program may have committed since the chains were written, so their
// rules are compared with what was written.
func (t *Table) observeChains(chains []*nft.Chain, before *fingerprint) error {
	var names []string
	for _, c := range chains {
		names = append(names, c.Name)
	}
	var found *fingerprint
	err := t.snapshot(func() (err error) {
		if found, err = t.readFingerprint(names); err != nil {
			return err
		}
		if d := found.compare(before); before.table.Handle != 0 && d != nil {
			return d
		}
		for _, c := range chains {
			if err := t.checkRules(damagedRule, c); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		err = fmt.Errorf("verify table %s after writing it: %w", t.name(), err)
		t.doubt(rewriteFailure, err.Error())
		return err
	}
	for name, ids := range before.rules {
		if _, read := found.rules[name]; !read {
			found.rules[name] = ids
		}
	}
	t.observed.fingerprint = found
	return nil
}

// checkRules compares the rules of a chain with those in the kernel. The error
// is a *damage if they differ.
func (t *Table) checkRules(kind DamageKind, c *nft.Chain) error {
	found, err := t.kernel.Rules(t.committed.program, c.Name)
	if err != nil {
		return err
	}
	if len(found) != len(c.Rules) || len(changedRules(c, found)) > 0 {
		return &damage{kind, "the rules of chain " + c.Name + " were changed"}
	}
	return nil
}

// changedRules returns the rules of a chain that differ from those that were
// found, which are as many.
func changedRules(c *nft.Chain, found []nft.RuleExpressions) (changed []nft.Rule) {
	for i, r := range c.Rules {
		if want, err := r.Expressions(); err != nil || !found[i].Equal(want) {
			changed = append(changed, r)
		}
	}
	return changed
}
