package proxier

import (
	"cmp"
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"k8s.io/klog/v2"

	"github.com/nftproxy/nftproxy/proxier/table"
	"github.com/nftproxy/nftproxy/proxier/table/keep"
)

// Periods of SyncLoop that are not configurable.
const (
	// publishPeriod is the interval at which checks publish metrics, if there
	// are as many. It is less than checkPeriod, which is not exact.
	publishPeriod = 900 * time.Millisecond
	// checkRetry is the delay before a check that failed is tried again.
	checkRetry = time.Second
	// retryFirst and retryLast limit the delay before a failed sync is tried
	// again, which doubles with each failure.
	retryFirst = 100 * time.Millisecond
	retryLast  = 10 * time.Second
)

// syncLoop is the loop of one address family.
type syncLoop struct {
	*family
	// last is the end of the last sync, rest the minimum time to wait after it.
	last   time.Time
	rest   time.Duration
	synced bool
	delay  time.Duration
	retry  <-chan time.Time // nil unless the last sync failed
	due    <-chan time.Time // nil unless a sync is scheduled
	next   <-chan time.Time // nil unless changes wait for their turns
	// logged is the time of the last sync that was logged, quiet the number of
	// syncs since then.
	logged time.Time
	quiet  int
	// published is the time at which a check last published metrics, checkAfter
	// the earliest time of the next check.
	published, checkAfter time.Time
	// checks has an element if a check is due, idle is true if the last one
	// left nothing to do (see pulse).
	checks chan struct{}
	idle   atomic.Bool
}

func newSyncLoop(f *family) *syncLoop { return &syncLoop{family: f, checks: make(chan struct{}, 1)} }

// run runs the loop until ctx ends.
func (l *syncLoop) run(ctx context.Context) {
	resync := time.NewTicker(l.config.syncPeriod())
	defer resync.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.wake:
			// A retry, or a sync that is scheduled, includes this change.
			// Meanwhile the loop continues to check the table.
			if l.retry == nil && l.due == nil {
				l.due = time.After(max(l.config.MinSyncPeriod, l.rest) - time.Since(l.last))
			}
		case <-l.due:
			l.due = nil
			l.attempt("Sync", l.table.Sync)
		case <-l.next:
			l.attempt("Sync", l.table.Sync)
		case <-l.retry:
			l.attempt("Sync", l.table.Sync)
		case <-l.checks:
			l.check()
		case <-resync.C:
			l.attempt("Resync", l.table.Resync)
		case query := <-l.queries:
			query()
		}
	}
}

// attempt passes the changes to the table and syncs it. It schedules another
// sync if this one fails.
func (l *syncLoop) attempt(what string, sync func() error) {
	if listed, _ := l.tracker.state(); !listed {
		return
	}
	start := time.Now()
	var wait time.Duration
	var left bool
	err := l.health.during(func() error {
		wait, left = l.handOver(l.limit())
		return sync()
	})
	l.last, l.rest = time.Now(), restAfter(time.Since(start))
	l.publish()
	l.next = nil
	if err != nil {
		l.due = nil // the retry includes the changes
		l.delay = min(max(2*l.delay, retryFirst), retryLast)
		l.retry = time.After(l.delay)
		klog.ErrorS(err, what+" failed", "ipFamily", l.name(), "retryAfter", l.delay)
		return
	}
	l.delay, l.retry = 0, nil
	if next, ok := l.table.Next(); ok && (!left || next < wait) {
		wait, left = next, true
	}
	if left {
		l.next = time.After(wait)
	}
	l.log(what, time.Since(start))
	if !l.synced {
		l.synced = true
		klog.InfoS("Rules are in place", "ipFamily", l.name(), "elapsed", time.Since(start))
		if l.unsynced.Add(-1) == 0 {
			close(l.allSynced)
		}
	}
}

// limit returns the cost of the changes that the next sync takes. The first one
// writes the whole table, so it takes all.
func (l *syncLoop) limit() int {
	if !l.synced {
		return math.MaxInt
	}
	return partCost
}

// restAfter returns how long to wait after a sync: three times its duration, so
// that continuous changes use at most a quarter of one processor. The wait is
// limited, because syncs of a few milliseconds write changes of namespaces that
// pay for them (see keep.Account).
func restAfter(sync time.Duration) time.Duration {
	const longest = 20 * time.Millisecond
	return min(3*sync, longest)
}

// log logs a sync, at most once a second.
func (l *syncLoop) log(what string, elapsed time.Duration) {
	if time.Since(l.logged) < time.Second {
		l.quiet++
		klog.V(4).InfoS(what+" complete", "ipFamily", l.name(), "elapsed", elapsed)
		return
	}
	klog.V(2).InfoS(what+" complete", "ipFamily", l.name(), "elapsed", elapsed,
		"servicePorts", strings.Join(l.written.names, " "), "changes", l.written.changes,
		"othersSinceLastLogged", l.quiet)
	l.logged, l.quiet, l.written = time.Now(), 0, writtenPorts{}
}

// writtenPorts are the service ports that were written since a line was logged:
// a few names, and the number of changes.
type writtenPorts struct {
	names   []string
	changes int
}

func (w *writtenPorts) add(c *table.Commit) {
	const maxNames = 5
	w.changes += len(c.Changes)
	for _, change := range c.Changes {
		if c.Whole || len(w.names) == maxNames {
			break // a list of all is of no use
		}
		plan := cmp.Or(change.After, change.Before)
		if name := plan.Name().String(); !slices.Contains(w.names, name) {
			w.names = append(w.names, name)
		}
	}
}

// check checks the table. If a repair fails, the next sync tries again.
func (l *syncLoop) check() {
	if time.Now().Before(l.checkAfter) {
		l.idle.Store(false)
		return
	}
	err := l.table.Check()
	l.health.check(l.table.Damaged(), time.Now())
	l.checkAfter = time.Now().Add(l.table.Rest())
	if err != nil {
		retry := checkRetry
		if _, damaged := errors.AsType[*keep.Damage](err); damaged { // since the repair, which was logged
			retry = pollPeriod
		} else {
			klog.ErrorS(err, "Failed to check the table", "ipFamily", l.name(), "retryAfter", retry)
		}
		l.checkAfter = time.Now().Add(retry)
		l.health.changed()
		l.request()
	}
	if l.table.IsRepairing() && err == nil {
		signal(l.checks) // between changes and queries
	}
	l.idle.Store(l.table.IsIdle())
	if time.Since(l.published) >= publishPeriod {
		l.published = time.Now()
		l.publish()
	}
}
