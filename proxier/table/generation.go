package table

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/nft/notify"
)

// generation tracks the generation of the ruleset of a network namespace, which
// every transaction of any program increases by one. The Tables of a proxy
// share it, so that they do not take each other for other programs. Each of
// them can belong to another goroutine.
//
// A Table has the turn from reading the generation until it has the answer to a
// commit. Meanwhile the others neither read nor commit. So a commit of one
// Table does not interrupt what another one reads, and is not foreign.
type generation struct {
	busy chan struct{} // has an element while a Table has the turn

	mu   sync.Mutex // guards the fields below
	turn int        // the number of turns so far
	// current is the generation after our last commit, or the last one that was
	// read. It is 0 before the first.
	current uint32
	// foreign counts how often the generation had changed by more than our own
	// commits.
	foreign int
	ports   sync.Map // the netlink ports of the Tables, as keys
}

// maxTurn is how long a Table waits for its turn, before it takes the turn of
// another one that hangs. If that one commits after all, its commit is foreign,
// which causes a verification.
const maxTurn = time.Second

// begin waits for the turn and returns its number for end.
func (g *generation) begin() int {
	select {
	case g.busy <- struct{}{}:
	default:
		select {
		case g.busy <- struct{}{}:
		case <-time.After(maxTurn):
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.turn++
	return g.turn
}

// end ends a turn, unless another Table took it.
func (g *generation) end(turn int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if turn != g.turn {
		return
	}
	select {
	case <-g.busy:
	default: // the Table began without waiting any longer, when another one ended
	}
}

// state returns the current generation and the number of foreign changes.
func (g *generation) state() (current uint32, foreign int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.current, g.foreign
}

// found records the generation that the ruleset has. It returns the number of
// foreign changes.
func (g *generation) found(now uint32) (foreign int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.current != now {
		g.current = now
		g.foreign++
	}
	return g.foreign
}

// advance records a commit of ours that expected a generation.
func (g *generation) advance(expected uint32) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.current == expected {
		g.current = nft.NextGeneration(expected)
	}
}

// exclude calls f, which reads the ruleset, while no other Table commits.
func (g *generation) exclude(f func() error) error {
	defer g.end(g.begin())
	return f()
}

// read calls get, which reads the ruleset and returns its generation, while no
// other Table commits.
func (o *observed) read(get func() (uint32, error)) error {
	return o.generation.exclude(func() error {
		now, err := get()
		if err == nil {
			o.seen = o.generation.found(now)
		}
		return err
	})
}

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
	if !t.observed.isVerified() {
		if err := t.verify(); err != nil {
			return err
		}
	}
	return t.commitUnless(t.verify)
}

// commitUnless commits the batch. If another program committed meanwhile, it
// calls changed, whose error reports that the batch is not valid any more, and
// tries again.
func (t *Table) commitUnless(changed func() error) error {
	for range maxAttempts {
		if err := t.commitExpecting(); !errors.Is(err, nft.ErrGeneration) {
			return err
		}
		if err := changed(); err != nil {
			return err
		}
	}
	return fmt.Errorf("%w, %d times in a row", nft.ErrGeneration, maxAttempts)
}

// commitExpecting commits the batch unless another program committed since the
// ruleset was last read for this Table. Then it returns nft.ErrGeneration. If
// the outcome is unknown, the table is in doubt, and the commit is foreign when
// it is found: it may be a commit of another program.
func (t *Table) commitExpecting() error {
	g := t.observed.generation
	defer g.end(g.begin())
	expected, foreign := g.state()
	if foreign != t.observed.seen { // another Table found it
		t.observed.seen = foreign
		return nft.ErrGeneration
	}
	t.batch.Expect(expected)
	err := t.commit()
	switch {
	case err == nil:
		g.advance(expected)
	case errors.Is(err, nft.ErrUnknownOutcome) && t.inDoubt == "":
		t.doubt(rewriteFailure, "the outcome of a transaction is unknown")
	case errors.Is(err, nft.ErrGeneration):
		now, errGet := t.kernel.Generation()
		if errGet != nil {
			return errGet
		}
		t.observed.seen = g.found(now)
	}
	return err
}

// observed is what was found out about changes of the table by other programs.
type observed struct {
	generation *generation // shared by the Tables of a proxy
	// seen is generation.foreign when the ruleset was last read, verified that
	// of the last verification.
	seen, verified int
	rest           time.Duration // before the next Check
	structure      *structure    // of the table as it was committed
	rules          ruleIDs       // of the chains of the program, the balancers, and chains that the scrubber compared
	scrubber       scrubber
	repairs        repairs
	monitor        monitor
}

// isVerified reports whether no other program committed between the last
// verification and the last time that the ruleset was read.
func (o *observed) isVerified() bool { return o.verified == o.seen }

// listenTime is how long nameOthers listens. Meanwhile every transaction on the
// host is slower.
const listenTime = 5 * time.Second

// monitor finds the processes that commit to nf_tables.
type monitor struct {
	inner *notify.Monitor // nil if it could not be opened, or is closed
	busy  sync.Mutex   // locked while inner is in use
}

// open opens the monitor. If that fails, nameOthers does nothing.
func (m *monitor) open() {
	inner, err := notify.OpenMonitor()
	if err != nil {
		klog.V(2).InfoS("Programs that change the table cannot be named", "err", err)
		return
	}
	m.inner = inner
}

// close closes the monitor when it has stopped listening: the number of a
// closed socket could already belong to another file.
func (m *monitor) close() error {
	inner := m.inner
	if m.inner = nil; inner == nil {
		return nil
	}
	if m.busy.TryLock() {
		return inner.Close()
	}
	go func() {
		m.busy.Lock()
		inner.Close()
	}()
	return nil
}

// nameOthers listens for a moment, in the background, and logs the other
// processes that commit to nf_tables. ours are the netlink ports of this
// process, as keys.
func (m *monitor) nameOthers(ours *sync.Map) {
	inner := m.inner
	if inner == nil || !m.busy.TryLock() {
		return
	}
	go func() {
		defer m.busy.Unlock()
		others, err := inner.Listen(listenTime)
		if err != nil {
			klog.ErrorS(err, "Failed to find out which program changes the table")
			return
		}
		for _, p := range others {
			if _, own := ours.Load(p.Port); !own {
				klog.InfoS("Another process commits to nf_tables", "process", p.Name, "pid", p.PID)
			}
		}
	}()
}
