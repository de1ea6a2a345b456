package conntrack

import (
	"context"
	"errors"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"
)

// CleanerConfig configures a [Cleaner].
type CleanerConfig struct {
	// Conn is the Cleaner's own from now on. The caller closes it after Run has returned.
	Conn *Conn

	// IsVIP is passed to [Conn.Clean]. It is called on Run's goroutine; it may be nil.
	IsVIP func(netip.AddrPort) bool

	// Report is called on Run's goroutine after each pass; it may be nil.
	Report func(Result)
}

// Result is the outcome of a pass.
type Result struct {
	Stats
	Changes  int // frontends that the pass was for
	Duration time.Duration
	Err      error // the changes are tried again
}

// Cleaner deletes stale flows on a goroutine of its own.
type Cleaner struct {
	clean  func(context.Context, []Change) (Stats, error)
	report func(Result)
	wake   chan struct{} // of capacity 1: there is something to do

	mu      sync.Mutex
	pending map[netip.AddrPort]Change // by frontend
}

const (
	// A pass is tried again after this long, doubled for each failure in a row.
	minRetryDelay = time.Second
	maxRetryDelay = time.Minute

	// When changes keep coming, a pass is followed by a rest of restFactor times its duration: on a large table a dump keeps
	// a CPU from handling packets (ctnetlink_dump_table disables bottom halves). A change waits for no more than maxRest,
	// however long the last pass took on a busy machine: a client may be without an answer for that long.
	restFactor = 4
	maxRest    = 500 * time.Millisecond

	// gatherDelay is how long a pass waits for more changes: those of the other address family come right after.
	gatherDelay = 5 * time.Millisecond
)

// NewCleaner makes a Cleaner. It does nothing until Run.
func NewCleaner(config CleanerConfig) (*Cleaner, error) {
	if config.Conn == nil {
		return nil, errors.New("conntrack cleaner: no connection")
	}
	c := newCleaner(func(ctx context.Context, changes []Change) (Stats, error) {
		return config.Conn.Clean(ctx, changes, config.IsVIP)
	}, config.Report)
	return c, nil
}

func newCleaner(clean func(context.Context, []Change) (Stats, error), report func(Result)) *Cleaner {
	if report == nil {
		report = func(Result) {}
	}
	return &Cleaner{
		clean:   clean,
		report:  report,
		wake:    make(chan struct{}, 1),
		pending: make(map[netip.AddrPort]Change),
	}
}

// Enqueue notes changes and returns at once. A change replaces one for the same frontend that was not handled yet. The
// Endpoints slices must not be modified afterwards.
func (c *Cleaner) Enqueue(changes ...Change) {
	if len(changes) == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, change := range changes {
		change.Frontend = unmap(change.Frontend)
		c.pending[change.Frontend] = change
	}
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// Run handles changes until ctx ends, and returns nil then. Call it once.
func (c *Cleaner) Run(ctx context.Context) error {
	retry := time.NewTimer(0)
	retry.Stop()
	defer retry.Stop()
	delay := minRetryDelay
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-c.wake:
			if !sleep(ctx, gatherDelay) {
				return nil
			}
		case <-retry.C:
		}
		changes := c.take()
		if len(changes) == 0 {
			continue
		}
		result := c.pass(ctx, changes)
		if result.Err == nil {
			delay = minRetryDelay
			retry.Stop()
		} else {
			c.putBack(changes)
			retry.Reset(delay)
			delay = min(2*delay, maxRetryDelay)
		}
		if !sleep(ctx, min(restFactor*result.Duration, maxRest)) {
			return nil
		}
	}
}

func (c *Cleaner) pass(ctx context.Context, changes []Change) Result {
	start := time.Now()
	stats, err := c.clean(ctx, changes)
	result := Result{Stats: stats, Changes: len(changes), Duration: time.Since(start), Err: err}
	if ctx.Err() == nil {
		c.report(result)
	}
	return result
}

// take empties what is pending, in the order of the frontends.
func (c *Cleaner) take() []Change {
	c.mu.Lock()
	defer c.mu.Unlock()
	changes := slices.SortedFunc(maps.Values(c.pending), func(a, b Change) int { return a.Frontend.Compare(b.Frontend) })
	c.pending = make(map[netip.AddrPort]Change) // going through an emptied map costs what it once held
	return changes
}

// putBack makes changes pending again, except where a newer one is.
func (c *Cleaner) putBack(changes []Change) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, change := range changes {
		if _, newer := c.pending[change.Frontend]; !newer {
			c.pending[change.Frontend] = change
		}
	}
}

// sleep reports whether the time has passed before ctx ended.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
