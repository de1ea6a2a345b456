package proxier

import (
	"errors"
	"fmt"

	"github.com/nftproxy/nftproxy/nft"
)

// generation is what is known of the generation of the ruleset, which every
// transaction on the host increases by one. The backends of a Proxier share it,
// so that they do not take each other for other programs.
type generation struct {
	// current is the generation after our last commit, or the last one that was
	// read; 0 before the first.
	current uint32
	// foreign counts how often the generation had moved by more than our own
	// commits.
	foreign int
	// ours are the netlink ports of the backends.
	ours map[uint32]bool
}

// found records the generation that the ruleset has.
func (g *generation) found(now uint32) {
	if g.current != now {
		g.current = now
		g.foreign++
	}
}

// committed records a commit of ours.
func (g *generation) committed() { g.current = nft.NextGeneration(g.current) }

// maxAttempts is how often an operation is tried again because another program
// committed in between, or with ever fewer service ports.
const maxAttempts = 20

// commitGuarded commits the batch if the table is as it was committed. If another
// program committed since the table was last verified, it is verified first; the
// error is a *damage if the other program changed it. An empty batch is no
// transaction, and nothing is verified.
func (b *Backend) commitGuarded() error {
	if b.batch.Empty() {
		return nil
	}
	for range maxAttempts {
		if b.verified != b.generation.foreign {
			if err := b.verify(); err != nil {
				return err
			}
		}
		if err := b.commitExpecting(); !errors.Is(err, nft.ErrGeneration) {
			return err
		}
	}
	return fmt.Errorf("%w, %d times in a row", nft.ErrGeneration, maxAttempts)
}

// commitExpecting commits the batch if the ruleset has the generation that is
// known, and returns nft.ErrGeneration otherwise.
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
