package conntrack

import (
	"context"
	"slices"
	"time"
)

// CleanerConfig configures a [Cleaner].
type CleanerConfig struct {
	// Slow makes the pauses between passes longer, for removals.
	Slow bool

	// Report is called on Run's goroutine after each pass. It may be nil.
	Report func(Result)
}

// Result is the outcome of a pass.
type Result struct {
	Stats
	Changes  int // changes that the pass checked for the first time
	Rechecks int // changes that the pass checked for the second time
	Duration time.Duration
	Err      error // if not nil, the pass is retried
}

// Cleaner deletes stale flows. Its methods are safe for concurrent use.
// Update and SetNodeAddrs do not block. When they are called, the rules for the
// new state must already be in the kernel.
//
// Each change is checked by two passes. The kernel inserts a flow into its
// table only when the first packet of the flow leaves its last hook
// (nf_conntrack_confirm). A packet that the old rules translated can be
// between two hooks during the commit and during the first pass, for example
// in the queue of a user-space program (NFQUEUE) or in a process that is
// preempted. Its flow appears in the table later, and the second pass finds
// it. The second pass follows after 250 to 500 ms. It lists the flows to the
// same frontends only. If possible, it is combined with a pass for other
// changes.
type Cleaner struct {
	*frontends
	challenges *challenges
	clean      func(context.Context, *check) (Stats, error)
	report     func(Result)

	// The other fields are owned by Run's goroutine.
	pause      pause
	rechecks   rechecks
	retryAt    time.Time // zero if the last pass succeeded
	retryDelay time.Duration
}

const (
	// recheckDelay is the minimum time between the two passes for a change.
	// It is long for a packet between two hooks, and short for a client
	// without a reply.
	recheckDelay = 250 * time.Millisecond

	// A failed pass is retried after minRetryDelay. The delay doubles with
	// each consecutive failure, up to maxRetryDelay. A new change causes an
	// earlier retry, after minRetryDelay.
	minRetryDelay = time.Second
	maxRetryDelay = time.Minute

	// gatherDelay is the time that a pass waits for more changes: the changes
	// of the other address family usually follow immediately.
	gatherDelay = 5 * time.Millisecond
)

// pause limits the share of the time in which a Cleaner makes passes, because
// on a large table, a dump keeps a CPU from handling packets
// (ctnetlink_dump_table disables bottom halves). A pass requires a pause of
// factor times its duration, but at most limit, however long it takes on a busy
// machine. The time since earlier passes, up to limit, counts as a part of this
// pause: the first passes for the endpoints of a lost node follow one another.
type pause struct {
	factor int
	limit  time.Duration
	end    time.Time // of all pauses that earlier passes require
}

var (
	// A UDP client may be without a reply meanwhile.
	changePause = pause{factor: 4, limit: 500 * time.Millisecond}
	// Endpoints of TCP are removed all the time, for example by each rollout.
	// While that continues, passes take 2 % of a CPU, and more if each takes
	// longer than 0.2 s: 4 % with a million entries.
	removalPause = pause{factor: 49, limit: 10 * time.Second}
)

// required returns the length of the pause that a pass requires.
func (p *pause) required(pass time.Duration) time.Duration {
	return min(time.Duration(p.factor)*pass, p.limit)
}

// after returns the length of the pause after a pass that ends now.
func (p *pause) after(pass time.Duration, now time.Time) time.Duration {
	if earliest := now.Add(-pass - p.limit); p.end.Before(earliest) {
		p.end = earliest
	}
	p.end = p.end.Add(pass + p.required(pass))
	return max(p.end.Sub(now), 0)
}

// NewCleaner returns a Cleaner. It does nothing until Run is called. Nothing
// else may use the Conn then. The caller closes it after Run has returned.
func (c *Conn) NewCleaner(config CleanerConfig) *Cleaner {
	f := newFrontends()
	cleaner := newCleaner(config, f, func(ctx context.Context, todo *check) (Stats, error) {
		return c.clean(ctx, f, todo)
	})
	cleaner.challenges = c.challenges
	return cleaner
}

func newCleaner(config CleanerConfig, f *frontends, clean func(context.Context, *check) (Stats, error)) *Cleaner {
	if config.Report == nil {
		config.Report = func(Result) {}
	}
	pause := changePause
	if config.Slow {
		pause = removalPause
	}
	return &Cleaner{
		frontends:  f,
		pause:      pause,
		clean:      clean,
		report:     config.Report,
		retryDelay: minRetryDelay,
	}
}

// Run checks changes until ctx ends, and then returns nil. It must be called
// only once.
func (c *Cleaner) Run(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-c.wake:
			if !sleep(ctx, gatherDelay) {
				return nil
			}
		case <-timer.C:
		}
		if !sleep(ctx, c.checkChanges(ctx)) {
			return nil
		}
		timer.Stop()
		if next := c.next(); !next.IsZero() {
			timer.Reset(time.Until(next))
		}
	}
}

// checkChanges makes a pass if there are changes to check, and returns the
// length of the pause after it.
func (c *Cleaner) checkChanges(ctx context.Context) time.Duration {
	fresh, second := c.take(), c.rechecks.take(time.Now())
	if fresh.empty() && second.empty() {
		c.retryAt = time.Time{}
		return 0
	}
	result := c.pass(ctx, fresh, second)
	if result.Err != nil {
		c.putBack(fresh)
		c.putBack(second)
		c.retryAt = time.Now().Add(c.retryDelay)
		c.retryDelay = min(2*c.retryDelay, maxRetryDelay)
		return minRetryDelay
	}
	c.retryAt, c.retryDelay = time.Time{}, minRetryDelay
	second.finish()
	if !fresh.empty() {
		c.rechecks = append(c.rechecks, recheck{fresh, time.Now()})
	}
	return c.pause.after(result.Duration, time.Now())
}

func (c *Cleaner) pass(ctx context.Context, fresh, second check) Result {
	var todo check
	todo.merge(fresh)
	todo.merge(second)
	start := time.Now()
	stats, err := c.clean(ctx, &todo)
	result := Result{
		Stats: stats, Changes: fresh.changes, Rechecks: second.changes, Duration: time.Since(start), Err: err,
	}
	c.challenges.send(ctx)
	if ctx.Err() == nil {
		c.report(result)
	}
	return result
}

// next returns the time of the next retry or second pass, zero if there is
// none.
func (c *Cleaner) next() time.Time {
	due := c.rechecks.due()
	if !c.retryAt.IsZero() && (due.IsZero() || c.retryAt.Before(due)) {
		return c.retryAt
	}
	return due
}

// sleep waits for d, and reports whether it elapsed before ctx ended.
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

// rechecks are the checks that have to be made a second time, in the order of
// their first passes.
type rechecks []recheck

type recheck struct {
	check
	at time.Time // when the first pass ended
}

// take removes and returns the checks that have waited for recheckDelay.
func (r *rechecks) take(now time.Time) (c check) {
	for len(*r) > 0 && now.Sub((*r)[0].at) >= recheckDelay {
		c.merge((*r)[0].check)
		*r = slices.Delete(*r, 0, 1) // frees the check
	}
	return c
}

// due returns the time of the next second pass, zero if no checks wait. It
// leaves time for other checks: there is at most one second pass per
// recheckDelay, however many frontends change. Until then, a pass for other
// changes can take the waiting checks along.
func (r rechecks) due() time.Time {
	if len(r) == 0 {
		return time.Time{}
	}
	return r[0].at.Add(2 * recheckDelay)
}
