package tabletest

import (
	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/nft"
)

// Kernel is a connection to the kernel that injects faults. Functions that
// are nil inject nothing.
type Kernel struct {
	*nft.Conn
	// OnCommit is called instead of commit, which commits the batch.
	OnCommit func(b *nft.Batch, commit func() error) error
	// OnChains, OnRows and OnRules return the errors of Chains, Rows and Rules.
	OnChains, OnRows, OnRules func() error
	// OnFindRows is called with the result of FindRows.
	OnFindRows func(want, found []nft.Row)
	// NoCounts makes Sets report no numbers of rows, as before Linux 6.15.
	NoCounts bool
}

// Commit implements keep.Kernel.
func (k *Kernel) Commit(b *nft.Batch) error {
	commit := func() error { return k.Conn.Commit(b) }
	if k.OnCommit != nil {
		return k.OnCommit(b, commit)
	}
	return commit()
}

// Chains implements keep.Kernel.
func (k *Kernel) Chains(t *nft.Table) ([]nft.Chain, error) {
	return read(k.OnChains, func() ([]nft.Chain, error) { return k.Conn.Chains(t) })
}

// Rules implements keep.Kernel.
func (k *Kernel) Rules(t *nft.Table, chain string) ([]nft.Rule, error) {
	return read(k.OnRules, func() ([]nft.Rule, error) { return k.Conn.Rules(t, chain) })
}

// Rows implements keep.Kernel.
func (k *Kernel) Rows(t *nft.Table, s *nft.Set) ([]nft.Row, error) {
	return read(k.OnRows, func() ([]nft.Row, error) { return k.Conn.Rows(t, s) })
}

// Sets implements keep.Kernel.
func (k *Kernel) Sets(t *nft.Table) ([]nft.FoundSet, error) {
	found, err := k.Conn.Sets(t)
	for i := range found {
		if k.NoCounts {
			found[i].Count = -1
		}
	}
	return found, err
}

func read[T any](fault func() error, from func() (T, error)) (found T, err error) {
	if fault != nil {
		err = fault()
	}
	if err != nil {
		return found, err
	}
	return from()
}

// FindRows implements keep.Kernel.
func (k *Kernel) FindRows(t *nft.Table, want []nft.Row) ([]nft.Row, error) {
	found, err := k.Conn.FindRows(t, want)
	if k.OnFindRows != nil && err == nil {
		k.OnFindRows(want, found)
	}
	return found, err
}

// Refuse returns the error of a kernel that refuses messages with these tags,
// or the whole transaction.
func Refuse(errno unix.Errno, tags ...uint32) error {
	err := &nft.CommitError{Table: "a table"}
	for _, tag := range tags {
		err.Problems = append(err.Problems, nft.Problem{Op: "add element", Object: "a row", Tag: tag, Errno: errno})
	}
	if len(tags) == 0 {
		err.Problems = []nft.Problem{{Op: "commit", Errno: errno}}
	}
	return err
}
