package keep

import (
	"errors"
	"fmt"
	"time"

	"github.com/nftproxy/nftproxy/nft"
)

// Kernel is the part of nft.Conn that a Keeper uses.
type Kernel interface {
	Commit(*nft.Batch) error
	Generation() (uint32, error)
	Snapshot(read func() error) (generation uint32, err error)
	FindTable(*nft.Table) (found nft.FoundTable, ok bool, err error)
	Chains(*nft.Table) ([]nft.Chain, error)
	FindChain(t *nft.Table, name string) (found nft.Chain, ok bool, err error)
	Sets(*nft.Table) ([]nft.FoundSet, error)
	Counters(*nft.Table) ([]nft.Counter, error)
	CtTimeouts(*nft.Table) ([]nft.CtTimeout, error)
	Rules(t *nft.Table, chain string) ([]nft.Rule, error)
	RuleIDs(t *nft.Table, chain string) ([]nft.RuleID, error)
	FindRows(*nft.Table, []nft.Row) ([]nft.Row, error)
	Rows(*nft.Table, *nft.Set) ([]nft.Row, error)
	Port() (uint32, error)
	Close() error
}

var _ Kernel = (*nft.Conn)(nil)

// link is the connection of a Keeper to the kernel.
type link struct {
	kernel     Kernel
	batch      *nft.Batch
	table      *nft.Table // family and name
	generation *Generation
	// seen is generation.foreign when the ruleset was last read for this
	// Keeper.
	seen int
	// doubt is the reason why the kernel may not have what was committed, ""
	// without doubt. cause and why are the cause and the reason of the rewrite
	// that follows, or of the last one.
	doubt string
	cause RewriteCause
	why   string
	Totals
}

// RewriteCause is a cause of rewrites. It is a label of metrics.
type RewriteCause string

// The causes of rewrites.
const (
	RewriteStart   RewriteCause = "start"   // of the process
	RewriteNode    RewriteCause = "node"    // a change of the program needs other sets
	RewriteFailure RewriteCause = "failure" // an update failed, or its outcome is unknown
	RewriteDamage  RewriteCause = "damage"  // another program changed the table
)

// RewriteCauses returns all causes of rewrites.
func RewriteCauses() []RewriteCause {
	return []RewriteCause{RewriteStart, RewriteNode, RewriteFailure, RewriteDamage}
}

// Totals count what a Keeper did since its creation.
type Totals struct {
	// Transactions counts transactions that the kernel carried out. RowsWritten
	// and BytesWritten count the rows that they added and deleted, and their
	// netlink bytes. CommitTime is the time that the kernel took for them.
	Transactions              int
	RowsWritten, BytesWritten int
	CommitTime                time.Duration
	// Rewrites counts the syncs that wrote everything, RewriteCauses by cause.
	Rewrites      int
	RewriteCauses map[RewriteCause]int
	// CleanupFailures counts failures to delete chains that are no longer used.
	CleanupFailures int
}

// name returns the name of the table for the log: ip kube-proxy.
func (l *link) name() string { return l.table.Family.String() + " " + l.table.Name }

// Distrust makes the next sync write everything. why is a reason for the log.
func (l *link) Distrust(cause RewriteCause, why string) { l.doubt, l.cause, l.why = why, cause, why }

// resetBatch begins a new batch. With isolate, rows of different owners are in
// different messages.
func (l *link) resetBatch(isolate bool) {
	l.batch.Reset()
	if isolate {
		l.batch.Isolate()
	}
}

// read calls get, which reads the ruleset and returns its generation, while no
// other Keeper commits.
func (l *link) read(get func() (uint32, error)) error {
	return l.generation.exclude(func() error {
		now, err := get()
		if err == nil {
			l.seen = l.generation.found(now)
		}
		return err
	})
}

// readOnce calls get, which reads the ruleset, in one generation. late means
// that this failed before: then get reads whatever the kernel has.
func (l *link) readOnce(late bool, get func() error) error {
	return l.read(func() (uint32, error) {
		if !late {
			return l.kernel.Snapshot(get)
		}
		if err := get(); err != nil {
			return 0, err
		}
		return l.kernel.Generation()
	})
}

// lateAttempt is the attempt from which a repair does not expect a generation.
const lateAttempt = maxAttempts / 2

// maxAttempts is the number of attempts of an operation that fails because
// other programs commit meanwhile, or because owners have to be left out.
const maxAttempts = 20

// commitUnless commits the batch. If another program committed meanwhile, it
// calls changed, whose error reports that the batch is not valid any more, and
// tries again.
func (l *link) commitUnless(changed func() error) error {
	for range maxAttempts {
		if err := l.commitExpecting(); !errors.Is(err, nft.ErrGeneration) {
			return err
		}
		if err := changed(); err != nil {
			return err
		}
	}
	return fmt.Errorf("%w, %d times in a row", nft.ErrGeneration, maxAttempts)
}

// commitExpecting commits the batch unless another program committed since the
// ruleset was last read for this Keeper. Then it returns nft.ErrGeneration. If
// the outcome is unknown, the table is in doubt, and the commit is foreign when
// it is found: it may be a commit of another program.
func (l *link) commitExpecting() error {
	return l.commitThen(func(expected uint32) error {
		l.generation.advance(expected)
		return nil
	})
}

// commitThen is commitExpecting with a function that records the generation
// after the commit, of which it gets the one before.
func (l *link) commitThen(record func(expected uint32) error) error {
	g := l.generation
	defer g.end(g.begin())
	expected, foreign := g.state()
	if foreign != l.seen { // another Keeper found it
		l.seen = foreign
		return nft.ErrGeneration
	}
	l.batch.Expect(expected)
	err := l.commit()
	switch {
	case err == nil:
		return record(expected)
	case errors.Is(err, nft.ErrUnknownOutcome) && l.doubt == "":
		l.Distrust(RewriteFailure, "the outcome of a transaction is unknown")
	case errors.Is(err, nft.ErrGeneration):
		now, errGet := l.kernel.Generation()
		if errGet != nil {
			return errGet
		}
		l.seen = g.found(now)
	}
	return err
}

// commit commits the batch and counts it. The process does not listen to
// nf_tables during a large transaction.
func (l *link) commit() error {
	if l.batch.Len() > largeBatch {
		l.generation.monitor.quiet.Lock()
		defer l.generation.monitor.quiet.Unlock()
	}
	start := time.Now()
	if err := l.kernel.Commit(l.batch); err != nil {
		return err
	}
	l.CommitTime += time.Since(start)
	l.Transactions++
	l.RowsWritten += l.batch.RowCount()
	l.BytesWritten += l.batch.Len()
	return nil
}
