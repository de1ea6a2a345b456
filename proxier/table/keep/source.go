// Package keep keeps an nftables table in the kernel equal to what a Source
// wants. It does not depend on the purpose of the table.
//
// A Keeper has three kinds of state:
//
//	wanted     what the Source returns when the Keeper asks it
//	committed  what the kernel has, as of the last commit that succeeded
//	observed   changes by other programs that the Keeper detected
//
// Sync asks for the contents of the owners that changed, and commits the
// difference between their committed and their new rows in one transaction
// (update.go), written in one order (write.go); a large change of one owner has
// stages. If the kernel may not have what was committed, for
// example after a lost answer, Sync compares everything and writes what
// differs, in steps (adopt.go), or everything in one transaction, while packets
// continue to use the old rows (rewrite.go).
//
// Two pure functions decide what follows a failure: fate.after for an owner,
// and attempt.next for the attempt to write (failure.go).
//
// Check verifies the table after commits of other programs (verify.go), then
// compares every row, a few at a time (scrub.go), and repairs what they find,
// and nothing else (repair.go).
package keep

import (
	"iter"
	"time"

	"github.com/nftproxy/nftproxy/nft"
)

// Source provides the wanted content of a Keeper's table: a program, rows of no
// owner, and the contents of owners. The Keeper calls it in the goroutine that
// uses the Keeper.
type Source interface {
	OwnerSource
	ProgramSource
	// Report is called with what happened.
	Report(Event)
}

// OwnerSource provides the contents of owners.
type OwnerSource interface {
	// Owners iterates over all owners. If sorted is true, the order depends on
	// nothing but their names.
	Owners(sorted bool) iter.Seq[Owner]
	// Content returns the content that an owner should have, nil for none, if
	// the kernel has another content of it. If remainder is true, the kernel
	// refused that, and Content returns the remainder: the part of have that
	// the owner should still have. With an error, the owner cannot be written
	// as it is wanted, and the content is the remainder.
	Content(o Owner, have Content, remainder bool) (Content, error)
	// Cost returns the approximate number of rows that take as long to write as
	// an owner, before or after its change.
	Cost(o Owner, have Content) int
	// Together calls join for each owner between which and o a row moves. One
	// transaction writes both. takes reports whether o gets the row.
	Together(o Owner, join func(other Owner, takes bool))
	// CountRows returns the number of rows of all owners, approximately.
	CountRows() int
}

// ProgramSource provides what does not depend on single owners. Chains and sets
// on demand are written when a row or a chain first needs them, and stay until
// a rewrite that does not need them.
type ProgramSource interface {
	// Program returns the sets, counters and chains that do not depend on
	// owners, the base chains last. used reports whether a set on demand has
	// rows. The sets do not depend on it otherwise.
	Program(used func(*nft.Set) bool) *nft.Table
	// Rows returns the rows of no owner. It is called after Content.
	Rows() []nft.Row
	// Own returns the name of a set that every table of this kind has. A table
	// without it is foreign.
	Own() string
	// Shared reports whether several owners can have one row of a set.
	Shared(*nft.Set) bool
	// OnDemand returns the sets on demand. Those that packets fill (Dynamic)
	// are needed by chains of owners, the others by rows.
	OnDemand() []*nft.Set
	// ChainOf returns the id of the chain on demand that a row needs. ok is
	// false if it needs none.
	ChainOf(r nft.Row) (id uint32, ok bool)
	// Chain returns a chain on demand, and the row that leads to it.
	Chain(id uint32) (*nft.Chain, nft.Row)
	// HasStableChains reports whether chains with the names of a content never
	// belonged to another owner, also before the process started.
	HasStableChains(Content) bool
	// IsIndexed reports whether the rows of a set have indexes: a packet looks
	// up an index only if all lower ones exist. After returns the keys at which
	// a set with indexes can have rows if the table has a row, and only then.
	IsIndexed(*nft.Set) bool
	After(nft.Row) []nft.Row
	// IsVital reports whether new connections fail if the rows of a set are
	// missing.
	IsVital(*nft.Set) bool
	// Inherit returns the rows that sets filled by packets take over from a
	// foreign table. has reports whether that table has a set.
	Inherit(sets iter.Seq[*nft.Set], has func(name string) bool) []nft.Row
}

// Event is what a Keeper reports:
//
//	*Commit     after each transaction, and after a repair, with everything. It must not be kept.
//	Refusal     once when an owner can no longer be written as it is wanted
//	SyncResult  at the end of each sync, also of one that repairs the whole table
//	*Damage     after a repair of rows or chains, which is no sync
//	Blame       by another goroutine than the Keeper's
type Event any

// Refusal is an owner that cannot be written as it is wanted. Why is an error
// of Content or of the kernel.
type Refusal struct {
	Owner Owner
	Why   error
}

// Blame names the processes that keep changing the table.
type Blame []string

// Owner has content in the table. Its results do not change.
type Owner interface {
	// Kept returns the Keeper's memory of the owner, which the owner holds by
	// value. It is zero at first.
	Kept() *Kept
	// Tag identifies the owner in transactions. It is unique and not 0.
	Tag() uint32
	// Account returns the account of the owner. Owners of other accounts do not
	// wait for it.
	Account() *Account
	// String returns the name of the owner for messages.
	String() string
}

// Content is what an owner has in the table. It is immutable and comparable.
// Its rows and chains are computed whenever they are needed.
type Content interface {
	// Rows appends the rows to a buffer.
	Rows(to []nft.Row) []nft.Row
	// Chains returns the chains of this owner alone, whose rules may refer to
	// each other and to the program. ChainNames returns their names.
	Chains() []*nft.Chain
	ChainNames() []string
	// Sets returns the sets on demand that the chains need.
	Sets() []*nft.Set
}

// Commit describes a transaction that the kernel carried out.
type Commit struct {
	// Whole reports whether the transaction wrote everything. Then Changes
	// contains all owners.
	Whole bool
	// Program reports whether the transaction wrote the program.
	Program bool
	Changes []Change
}

// Change is the change of an owner. Before is nil if the kernel had nothing of
// it, Next is nil if the kernel has nothing of it now.
type Change struct {
	Owner        Owner
	Before, Next Content

	stage  stage
	staged []nft.Row // the rows in the kernel, if they are not those of Next
	wanted Content   // the content after the last stage
}

// Causes of syncs that do not write the whole table.
const (
	CauseChanges  = "changes"
	CausePeriodic = "periodic"
)

// SyncResult describes a sync that ended.
type SyncResult struct {
	Family nft.Family
	// Cause is why the sync ran: CauseChanges, CausePeriodic, or the reason to
	// write the whole table.
	Cause    string
	Ended    time.Time
	Duration time.Duration
	// Full reports whether the sync wrote, or tried to write, the whole table.
	Full bool
	// Rewrite is the cause of the rewrite, and Why its reason, if Full is set.
	Rewrite RewriteCause
	Why     string
	// Transactions and Rows are the numbers of transactions and rows that were
	// written.
	Transactions, Rows int
	Err                error
}

// stage is the last stage that a transaction writes.
type stage uint8

const (
	stageAll   stage = iota // the change is complete
	stageFirst              // the content stays the old one
	stageMost               // the content is the new one
)
