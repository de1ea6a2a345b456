package keep

import (
	"fmt"

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

// Verify reads the table. The error is a *Damage if the table is not as it was
// committed.
func (s *state) Verify() error {
	a := audit{state: s}
	err := s.read(func() (uint32, error) {
		return s.kernel.Snapshot(func() error {
			err := a.compareStructure(s.have.someChains(s.source, maxVerifiedChains))
			if err != nil || len(a.found) > 0 {
				return err
			}
			return a.sampleRows()
		})
	})
	if err != nil {
		return fmt.Errorf("verify table %s: %w", s.name(), err)
	}
	if len(a.found) > 0 {
		return &a.found[0].damage
	}
	s.verified, s.suspect = s.seen, false
	if s.structure == nil {
		s.recordStructure(a.now)
	}
	return nil
}

// sampleRows compares the number of rows of each set that is not being
// repaired.
func (a *audit) sampleRows() error {
	for _, set := range a.have.program.Sets {
		if a.damaged.has(set) {
			continue
		}
		count := a.now.objects[object{kindSet, set.Name}].set.Count
		if err := a.sampleSet(set, count); err != nil || len(a.found) > 0 {
			return err
		}
	}
	return nil
}

// sampleSet compares the number of rows of a set. If the kernel does not report
// it, it reads a few rows, to find out whether the set was flushed.
func (a *audit) sampleSet(set *nft.Set, has int) error {
	before := len(a.found)
	if want := a.have.counts[set] + a.have.extra[set]; has >= 0 && has != want {
		what := fmt.Sprintf("set %s has %d rows, not %d", set.Name, has, want)
		a.found = append(a.found, Difference{damage: Damage{What: what}})
	} else if has < 0 {
		if err := a.compareRows("", a.have.samplesOf(a.source, set)); err != nil {
			return err
		}
	}
	for i := range a.found[before:] {
		a.found[before+i].damage.Kind = DamagedRows
	}
	return nil
}

// maxVerifiedChains is the number of chains on demand that are verified at a
// time. If there are more, the scrubber reads the others.
const maxVerifiedChains = 32

// observe compares what a transaction wrote of the structure and of the rules
// that verification reads: another program may have committed since. It records
// them for the next verification.
func (s *state) observe(tx *transaction, program bool) error {
	if !program && len(tx.demand) == 0 && len(tx.sets) == 0 {
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
	err := s.generation.exclude(func() error {
		_, err := s.kernel.Snapshot(func() error { return a.compareStructure(chains) })
		return err
	})
	if err == nil && len(a.found) > 0 {
		err = &a.found[0].damage
	}
	if err != nil {
		s.suspect, s.verified = true, -1 // the next verification finds the damage
		return fmt.Errorf("verify table %s after writing it: %w", s.name(), err)
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
	if s.batch.Empty() {
		return nil
	}
	if !s.isVerified() {
		if err := s.Verify(); err != nil {
			return err
		}
	}
	return s.commitUnless(s.Verify)
}
