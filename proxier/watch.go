package proxier

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"k8s.io/klog/v2"

	"github.com/nftproxy/nftproxy/nft"
)

// watch notices when another program changes the table. Every transaction on the host moves the ruleset's
// generation by one. When it moved by more than our own transactions, the table may have been changed: its fingerprint says
// whether the program is still as it was committed. Rows that another program changed show in no fingerprint that is cheap to
// read; they are put right by the next Resync.
type watch struct {
	// strangers is generation.strangers when the table was last known to be as it was committed.
	strangers int
	// fingerprint is what the program looked like after our last commit of it; nil if it is not known.
	fingerprint *fingerprint
	// suspect says that another program committed something since everything was written.
	suspect bool
	// repaired is when the table was last found changed.
	repaired time.Time
}

// repairsApart is how far apart repairs are that come of one program at a time, rather than of two that both want the table.
const repairsApart = 5 * time.Second

// generation is what is known of the ruleset's generation. The backends of a Proxier share it, so that they do not take each
// other for other programs.
type generation struct {
	// current is that after our last commit, or the last one that was looked at; 0 before the first.
	current uint32
	// strangers counts how often it had moved by more than our own commits.
	strangers int
}

// found takes note of the generation that the ruleset has.
func (g *generation) found(now uint32) {
	if g.current != now {
		g.current = now
		g.strangers++
	}
}

// committed takes note of a commit of ours.
func (g *generation) committed() { g.current = nft.NextGeneration(g.current) }

// fingerprint is made of the numbers that the kernel gives to objects, none of which it gives twice.
type fingerprint struct {
	table  uint64
	chains map[string]uint64   // handles of the program's chains
	rules  map[string][]uint64 // handles of their rules
	sets   map[string]uint64
}

func (f *fingerprint) equal(o *fingerprint) bool {
	return f.table == o.table && maps.Equal(f.chains, o.chains) && maps.Equal(f.sets, o.sets) &&
		maps.EqualFunc(f.rules, o.rules, slices.Equal[[]uint64])
}

// errTampered says that another program changed what belongs to us.
var errTampered = errors.New("another program changed the table")

// commitGuarded commits the batch if no other program changed the table since we looked at it, errTampered otherwise. An
// empty batch is no transaction, and looks at nothing.
func (b *Backend) commitGuarded() error {
	if b.batch.Empty() {
		return nil
	}
	for range maxAttempts {
		if b.watch.strangers != b.generation.strangers {
			if err := b.checkIntact(); err != nil {
				return err
			}
		}
		if err := b.commitExpecting(); !errors.Is(err, nft.ErrGeneration) {
			return err
		}
	}
	return fmt.Errorf("%w, %d times in a row", nft.ErrGeneration, maxAttempts)
}

// commitExpecting commits the batch if the ruleset has the generation that we know of, nft.ErrGeneration otherwise.
func (b *Backend) commitExpecting() error {
	b.batch.Expect(b.generation.current)
	err := b.commit()
	switch {
	case err == nil:
		b.generation.committed()
	case errors.Is(err, nft.ErrGeneration):
		now, errGet := b.kernel.Generation()
		if errGet != nil {
			return errGet
		}
		b.generation.found(now)
	}
	return err
}

// observe takes the fingerprint of what was just committed.
func (b *Backend) observe() {
	f, now, err := b.readFingerprint()
	if err != nil || now != b.generation.current {
		klog.V(2).InfoS("Table could not be looked at after writing it", "family", b.layout.family, "err", err)
		f = nil // the next change of another program makes us write it again
	}
	b.watch.fingerprint = f
}

// checkIntact looks whether the program is as it was committed, after the generation moved.
func (b *Backend) checkIntact() error {
	f, now, err := b.readFingerprint()
	if err != nil {
		return err
	}
	b.generation.found(now)
	if b.watch.fingerprint == nil || !f.equal(b.watch.fingerprint) {
		return fmt.Errorf("%w %s %s", errTampered, b.layout.family, TableName)
	}
	b.watch.strangers, b.watch.suspect = b.generation.strangers, true
	return nil
}

// readFingerprint reads the fingerprint of the table and the generation that it is of.
func (b *Backend) readFingerprint() (*fingerprint, uint32, error) {
	for range maxAttempts {
		before, err := b.kernel.Generation()
		if err != nil {
			return nil, 0, err
		}
		f, err := b.fingerprint()
		if errors.Is(err, nft.ErrGeneration) {
			continue
		}
		if err != nil {
			return nil, 0, err
		}
		after, err := b.kernel.Generation()
		if err != nil {
			return nil, 0, err
		}
		if before == after {
			return f, after, nil
		}
	}
	return nil, 0, fmt.Errorf("read %s: %w", b.table, nft.ErrGeneration)
}

func (b *Backend) fingerprint() (*fingerprint, error) {
	f := &fingerprint{chains: make(map[string]uint64), rules: make(map[string][]uint64), sets: make(map[string]uint64)}
	var err error
	if f.table, _, err = b.kernel.TableHandle(b.table); err != nil {
		return nil, err
	}
	chains, err := b.kernel.Chains(b.table)
	if err != nil {
		return nil, err
	}
	sets, err := b.kernel.Sets(b.table)
	if err != nil {
		return nil, err
	}
	for _, found := range sets {
		if slices.ContainsFunc(b.table.Sets, func(s *nft.Set) bool { return s.Name == found.Name }) {
			f.sets[found.Name] = found.Handle
		}
	}
	for _, found := range chains {
		if !slices.ContainsFunc(b.table.Chains, func(c *nft.Chain) bool { return c.Name == found.Name }) {
			continue
		}
		f.chains[found.Name] = found.Handle
		rules, err := b.kernel.Rules(b.table, found.Name)
		if err != nil {
			return nil, err
		}
		for _, r := range rules {
			f.rules[found.Name] = append(f.rules[found.Name], r.Handle)
		}
	}
	return f, nil
}

// Check looks whether another program changed the table, and puts it right at once if so. It costs one small request
// while nobody but us commits anything.
func (b *Backend) Check() error {
	if b.inDoubt != "" {
		return nil // nothing was written yet, or the next sync writes everything
	}
	now, err := b.kernel.Generation()
	if err != nil {
		return err
	}
	if b.generation.found(now); b.generation.strangers == b.watch.strangers {
		return nil
	}
	err = b.checkIntact()
	if !errors.Is(err, errTampered) {
		return err
	}
	b.repair(err)
	return b.timed(b.rewrite)
}

// repair makes the next rewrite one that puts right what another program did.
func (b *Backend) repair(err error) {
	klog.InfoS("Writing the table again", "family", b.layout.family, "reason", err)
	if time.Since(b.watch.repaired) < repairsApart {
		klog.InfoS("The table is changed again and again: is another service proxy running?", "family", b.layout.family)
	}
	b.watch.repaired = time.Now()
	b.stats.Repairs++
	b.doubt("another program changed the table")
}

// Resync writes everything again if another program may have changed rows, and tries again what the kernel refused.
func (b *Backend) Resync() error {
	if err := b.Check(); err != nil {
		return err
	}
	if b.watch.suspect {
		b.doubt("another program committed to nf_tables")
	}
	for p := range b.refused {
		b.markDirty(p.service)
	}
	return b.Sync()
}
