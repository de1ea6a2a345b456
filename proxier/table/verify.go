package table

import (
	"fmt"
	"maps"
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

// programChains returns the names of the chains of the program, and of up to n
// balancers, in a different order each time.
func (t *Table) programChains(n int) []string {
	names := make([]string, 0, len(t.committed.program.Chains)+n)
	for _, c := range t.committed.program.Chains {
		names = append(names, c.Name)
	}
	for name := range t.committed.balancers {
		if len(names) == cap(names) {
			break
		}
		names = append(names, name)
	}
	return names
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

// readRules reads the identities of the rules of chains.
func (t *Table) readRules(chains []string) (ruleIDs, error) {
	found := make(ruleIDs, len(chains))
	for _, name := range chains {
		ids, err := t.kernel.RuleIDs(t.committed.program, name)
		if err != nil {
			return nil, err
		}
		found[name] = ids
	}
	return found, nil
}

// observe compares what a transaction wrote of the structure and of the rules
// that verification reads: another program may have committed since. It records
// them for the next verification.
func (t *Table) observe(tx *transaction) error {
	if !tx.changesProgram() {
		return nil
	}
	if tx.whole {
		t.observed.structure, t.observed.rules = nil, make(ruleIDs)
	}
	names := slices.Collect(maps.Keys(tx.balancers))
	if tx.program != nil {
		names = append(names, t.programChains(0)...)
	}
	a := audit{table: t}
	err := t.snapshot(func() error { return a.structure(names) })
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
