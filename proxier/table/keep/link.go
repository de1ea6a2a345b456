package keep

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/klog/v2"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/nft/notify"
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
	doubt  string
	cause  RewriteCause
	why    string
	totals Totals
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

// distrust makes the next sync write everything. why is a reason for the log.
func (l *link) distrust(cause RewriteCause, why string) { l.doubt, l.cause, l.why = why, cause, why }

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
		l.distrust(RewriteFailure, "the outcome of a transaction is unknown")
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
	l.totals.CommitTime += time.Since(start)
	l.totals.Transactions++
	l.totals.RowsWritten += l.batch.RowCount()
	l.totals.BytesWritten += l.batch.Len()
	return nil
}

// Generation tracks the generation of the ruleset of a network namespace, which
// every transaction of any program increases by one. The Keepers of a process
// share it, so that they do not mistake each other for other programs. Each of
// them can belong to another goroutine.
//
// A Keeper has the turn from reading the generation until it has the answer to
// a commit. Meanwhile the others neither read nor commit. So a commit of one
// Keeper does not interrupt what another one reads, and is not foreign.
type Generation struct {
	busy chan struct{} // has an element while a Keeper has the turn

	mu   sync.Mutex // guards the fields below
	turn int        // the number of turns so far
	// current is the generation after our last commit, or the last one that was
	// read. It is 0 before the first.
	current uint32
	// foreign counts how often the generation had changed by more than our own
	// commits.
	foreign int
	ports   sync.Map // the netlink ports of the Keepers, as keys
	monitor monitor
}

// NewGeneration returns the Generation for the Keepers of a network namespace.
func NewGeneration() *Generation { return &Generation{busy: make(chan struct{}, 1)} }

// maxTurn is how long a Keeper waits for its turn, before it takes the turn of
// another one that hangs. If that one commits after all, its commit is foreign,
// which causes a verification.
const maxTurn = time.Second

// begin waits for the turn and returns its number for end.
func (g *Generation) begin() int {
	select {
	case g.busy <- struct{}{}:
	default:
		select {
		case g.busy <- struct{}{}:
		case <-time.After(maxTurn):
		}
	}
	return g.next()
}

// next returns the number of a turn that begins.
func (g *Generation) next() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.turn++
	return g.turn
}

// end ends a turn, unless another Keeper took it.
func (g *Generation) end(turn int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if turn != g.turn {
		return
	}
	select {
	case <-g.busy:
	default: // the Keeper began without waiting any longer, when another one ended
	}
}

// Poll reads the generation, unless a Keeper has the turn. It returns the
// number of foreign changes so far.
func (g *Generation) Poll(read func() (uint32, error)) (foreign int, err error) {
	select {
	case g.busy <- struct{}{}:
	default:
		_, foreign = g.state()
		return foreign, nil
	}
	defer g.end(g.next())
	now, err := read()
	if err != nil {
		return 0, err
	}
	return g.found(now), nil
}

// nameOthers finds out which other processes commit, in the background.
func (g *Generation) nameOthers(found func(processes []string)) {
	isOurs := func(port uint32) bool {
		_, ours := g.ports.Load(port)
		return ours
	}
	g.monitor.nameOthers(isOurs, found)
}

// state returns the current generation and the number of foreign changes.
func (g *Generation) state() (current uint32, foreign int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.current, g.foreign
}

// found records the generation that the ruleset has. It returns the number of
// foreign changes.
func (g *Generation) found(now uint32) (foreign int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.current != now {
		g.current = now
		g.foreign++
	}
	return g.foreign
}

// advance records a commit of ours that expected a generation.
func (g *Generation) advance(expected uint32) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.current == expected {
		g.current = nft.NextGeneration(expected)
	}
}

// exclude calls f, which reads the ruleset, while no other Keeper commits.
func (g *Generation) exclude(f func() error) error {
	defer g.end(g.begin())
	return f()
}

const (
	// listenTime is how long nameOthers listens, listenStep how long without a
	// break. While any program listens, the kernel builds a message of several
	// KB for each element of a transaction, and keeps all of them until the
	// transaction ends.
	listenTime = 5 * time.Second
	listenStep = 50 * time.Millisecond
)

// monitor finds the processes that commit to nf_tables. The Keepers of a
// process share it.
type monitor struct {
	// quiet is locked while the monitor listens, and while a Keeper commits a
	// large transaction.
	quiet sync.Mutex
	users int             // Keepers that are open
	inner *notify.Monitor // nil if it could not be opened, or is closed
	busy  atomic.Bool     // nameOthers is at work
}

// open opens the monitor for a Keeper. If that fails, nameOthers does nothing.
func (m *monitor) open() {
	m.quiet.Lock()
	defer m.quiet.Unlock()
	if m.users++; m.inner != nil {
		return
	}
	inner, err := notify.OpenMonitor()
	if err != nil {
		klog.V(2).InfoS("Programs that change the table cannot be named", "err", err)
		return
	}
	m.inner = inner
}

// close closes the monitor when the last Keeper is closed.
func (m *monitor) close() error {
	m.quiet.Lock()
	defer m.quiet.Unlock()
	inner := m.inner
	if m.users--; m.users > 0 || inner == nil {
		return nil
	}
	m.inner = nil
	return inner.Close()
}

// nameOthers listens for a moment, in the background, logs the processes that
// commit to nf_tables and are not ours, and passes them to a function.
func (m *monitor) nameOthers(ours func(port uint32) bool, found func(processes []string)) {
	if !m.busy.CompareAndSwap(false, true) {
		return
	}
	go func() {
		defer m.busy.Store(false)
		var others []notify.Committer
		for end := time.Now().Add(listenTime); time.Now().Before(end); {
			now, ok, err := m.listen()
			if err != nil {
				klog.ErrorS(err, "Failed to find out which program changes the table")
			}
			if err != nil || !ok {
				return
			}
			others = append(others, now...)
		}
		var processes []string
		for _, p := range others {
			name := fmt.Sprintf("%s (process %d)", p.Name, p.PID)
			if !ours(p.Port) && !slices.Contains(processes, name) {
				processes = append(processes, name)
				klog.InfoS("Another process commits to nf_tables", "process", p.Name, "pid", p.PID)
			}
		}
		if len(processes) > 0 {
			found(processes)
		}
	}()
}

// listen returns the processes that commit during listenStep. ok is false if
// the monitor is closed.
func (m *monitor) listen() (found []notify.Committer, ok bool, err error) {
	m.quiet.Lock()
	defer m.quiet.Unlock()
	if m.inner == nil {
		return nil, false, nil
	}
	found, err = m.inner.Listen(listenStep)
	return found, true, err
}

// largeBatch is the size of a batch whose buffers are not kept: about 1,000
// rows.
const largeBatch = 64 << 10
