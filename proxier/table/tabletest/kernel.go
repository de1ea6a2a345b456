package tabletest

import (
	"errors"

	"github.com/nftproxy/nftproxy/nft"
)

// ErrCommit is an error for commits that a test refuses.
var ErrCommit = errors.New("commit refused by the test")

// Kernel is a connection to the kernel that injects faults. Functions that
// are nil inject nothing.
type Kernel struct {
	*nft.Conn
	// OnCommit is called instead of commit, which commits the batch.
	OnCommit func(b *nft.Batch, commit func() error) error
	// OnChains returns the error of Chains.
	OnChains func() error
	// OnRows returns the error of Rows.
	OnRows func() error
	// OnRules returns the error of Rules.
	OnRules func(chain string) error
	// OnFindRows is called with the result of FindRows.
	OnFindRows func(want, found []nft.Row)
}

// Commit implements table.Kernel.
func (k *Kernel) Commit(b *nft.Batch) error {
	commit := func() error { return k.Conn.Commit(b) }
	if k.OnCommit != nil {
		return k.OnCommit(b, commit)
	}
	return commit()
}

// FailCommits makes all commits fail with ErrCommit.
func (k *Kernel) FailCommits() {
	k.OnCommit = func(*nft.Batch, func() error) error { return ErrCommit }
}

// Chains implements table.Kernel.
func (k *Kernel) Chains(t *nft.Table) ([]nft.Chain, error) {
	if k.OnChains != nil {
		if err := k.OnChains(); err != nil {
			return nil, err
		}
	}
	return k.Conn.Chains(t)
}

// Rules implements table.Kernel.
func (k *Kernel) Rules(t *nft.Table, chain string) ([]nft.Rule, error) {
	if k.OnRules != nil {
		if err := k.OnRules(chain); err != nil {
			return nil, err
		}
	}
	return k.Conn.Rules(t, chain)
}

// Rows implements table.Kernel.
func (k *Kernel) Rows(t *nft.Table, s *nft.Set) ([]nft.Row, error) {
	if k.OnRows != nil {
		if err := k.OnRows(); err != nil {
			return nil, err
		}
	}
	return k.Conn.Rows(t, s)
}

// FindRows implements table.Kernel.
func (k *Kernel) FindRows(t *nft.Table, want []nft.Row) ([]nft.Row, error) {
	found, err := k.Conn.FindRows(t, want)
	if k.OnFindRows != nil && err == nil {
		k.OnFindRows(want, found)
	}
	return found, err
}
