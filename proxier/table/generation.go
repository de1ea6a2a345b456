package table

import (
	"errors"
	"fmt"

	"github.com/nftproxy/nftproxy/nft"
)

// generation tracks the generation of the ruleset, which every transaction on
// the host increases by one. The Tables of a proxy share it, so that they do
// not take each other for other programs.
type generation struct {
	// current is the generation after our last commit, or the last one that was
	// read. It is 0 before the first.
	current uint32
	// foreign counts how often the generation had changed by more than our own
	// commits.
	foreign int
	// ours are the netlink ports of the Tables.
	ours map[uint32]bool
}

// found records the generation that the ruleset has.
func (g *generation) found(now uint32) {
	if g.current != now {
		g.current = now
		g.foreign++
	}
}

// advance records a commit of ours.
func (g *generation) advance() { g.current = nft.NextGeneration(g.current) }

// maxAttempts is the number of attempts of an operation that fails because
// other programs commit meanwhile, or because service ports have to be left
// out.
const maxAttempts = 20

// commitGuarded commits the batch if the table is as it was committed. If
// another program committed since the last verification, it verifies the table
// first. The error is a *damage if the other program changed the table. An
// empty batch is not committed, and nothing is verified.
func (t *Table) commitGuarded() error {
	if t.batch.Empty() {
		return nil
	}
	for range maxAttempts {
		if !t.observed.isVerified() {
			if err := t.verify(); err != nil {
				return err
			}
		}
		if err := t.commitExpecting(); !errors.Is(err, nft.ErrGeneration) {
			return err
		}
	}
	return fmt.Errorf("%w, %d times in a row", nft.ErrGeneration, maxAttempts)
}

// commitExpecting commits the batch if the ruleset has the current generation.
// Otherwise it returns nft.ErrGeneration.
func (t *Table) commitExpecting() error {
	t.batch.Expect(t.observed.generation.current)
	err := t.commit()
	switch {
	case err == nil:
		t.observed.generation.advance()
	case errors.Is(err, nft.ErrGeneration):
		now, errGet := t.kernel.Generation()
		if errGet != nil {
			return errGet
		}
		t.observed.generation.found(now)
	}
	return err
}
