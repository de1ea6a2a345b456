package nft

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/nft/nfnetlink"
)

// Generation returns the generation of the ruleset. Each transaction of any
// program in the network namespace increments it. It is never 0.
func (c *Conn) Generation() (uint32, error) {
	var gen uint32
	err := c.request(unix.NFT_MSG_GETGEN, 0, 0, nil, func(msg []byte) {
		gen = be32(attr(msg, unix.NFTA_GEN_ID))
	})
	if err == nil && gen == 0 {
		err = nfnetlink.ErrIncomplete
	}
	if err != nil {
		return 0, fmt.Errorf("read generation: %w", err)
	}
	return gen, nil
}

// NextGeneration returns the generation that follows gen. The largest number
// is followed by 1.
func NextGeneration(gen uint32) uint32 { return max(gen+1, 1) }

// snapshotAttempts is the number of attempts to read a snapshot while other
// programs commit.
const snapshotAttempts = 10

// Snapshot calls read, which calls methods of c that read the ruleset, and
// returns the generation to which all their results belong. If another
// program commits meanwhile, Snapshot calls read again. After several
// attempts it returns ErrGeneration.
func (c *Conn) Snapshot(read func() error) (generation uint32, err error) {
	if c.inSnapshot {
		return 0, read()
	}
	c.inSnapshot = true
	defer func() { c.inSnapshot = false }()
	for range snapshotAttempts {
		before, err := c.settle()
		if err == nil {
			err = read()
		}
		if errors.Is(err, ErrGeneration) {
			continue
		}
		if err != nil {
			return 0, err
		}
		after, err := c.Generation()
		if err != nil || after == before {
			return after, err
		}
	}
	return 0, ErrGeneration
}

// settle waits until no transaction is in progress and returns the generation
// at that time. It sends an empty transaction, which waits for the preceding
// one and does not increment the generation.
func (c *Conn) settle() (uint32, error) {
	for range snapshotAttempts {
		gen, err := c.Generation()
		if err != nil {
			return 0, err
		}
		b := NewBatch(&Table{})
		b.Expect(gen)
		switch err := c.apply(b); {
		case err == nil:
			return gen, nil
		case !errors.Is(err, ErrGeneration):
			// The caller only reads: the error is not about a transaction.
			if errno, ok := errors.AsType[unix.Errno](err); ok {
				return 0, errno
			}
			return 0, fmt.Errorf("wait for transactions: %v", err)
		}
	}
	return 0, ErrGeneration
}
