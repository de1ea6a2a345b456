package proxier

import (
	"context"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"github.com/nftproxy/nftproxy/proxier/table"
)

// Sync requests a sync as soon as possible. It does not wait for it. No sync
// takes place before the first full lists of Services and EndpointSlices.
func (p *Proxier) Sync() {
	if p.tracker.ready() {
		p.health.changed()
	}
	for _, f := range p.families {
		p.metrics.lastQueued.WithLabelValues(apiFamily(f.table.Family())).SetToCurrentTime()
	}
	select {
	case p.wake <- struct{}{}:
	default: // a sync is already requested
	}
}

// Periods of SyncLoop that are not configurable.
const (
	// checkPeriod is the interval between checks for changes by other programs.
	checkPeriod = 50 * time.Millisecond
	// publishPeriod is the interval at which checks publish metrics.
	publishPeriod = time.Second
	// retryFirst and retryLast limit the delay before a failed sync is tried
	// again, which doubles with each failure.
	retryFirst = 100 * time.Millisecond
	retryLast  = 10 * time.Second
)

// SyncLoop syncs on request, retries syncs that failed, and repairs the tables
// when other programs change them. It returns when ctx ends. The tables stay.
func (p *Proxier) SyncLoop(ctx context.Context) {
	var background sync.WaitGroup
	defer background.Wait()
	if p.addresses != nil {
		background.Go(func() { p.addresses.run(ctx) })
	}
	if p.flows != nil {
		background.Go(func() { p.flows.run(ctx) })
	}
	for _, f := range p.families {
		background.Go(func() { f.checks.server.Run(ctx) })
		if f.localhost != nil {
			background.Go(func() { f.localhost.server.Run(ctx) })
		}
	}
	check, resync := time.NewTicker(checkPeriod), time.NewTicker(p.config.syncPeriod())
	defer check.Stop()
	defer resync.Stop()
	loop := syncLoop{proxier: p}
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.wake:
			if loop.retry == nil { // otherwise the retry includes this change
				loop.schedule(max(p.config.MinSyncPeriod, loop.rest) - time.Since(loop.last))
			}
		case <-loop.due:
			loop.due = nil
			loop.run("Sync", p.syncChanges)
		case <-loop.retry:
			loop.run("Sync", p.syncChanges)
		case <-check.C:
			loop.check()
		case <-resync.C:
			loop.run("Resync", p.resync)
		case query := <-p.queries:
			query()
		}
	}
}

// syncLoop is the state of a SyncLoop.
type syncLoop struct {
	proxier *Proxier
	// last is the end of the last sync, rest the minimum time to wait after it.
	last   time.Time
	rest   time.Duration
	synced bool
	delay  time.Duration
	retry  <-chan time.Time // nil unless the last sync failed
	due    <-chan time.Time // nil unless a sync is scheduled
	// logged is the time of the last sync that was logged, quiet the number of
	// syncs since then.
	logged time.Time
	quiet  int
	// published is the time at which a check last published metrics, checkAfter
	// the time of the next check after a check that failed.
	published, checkAfter time.Time
}

// schedule schedules a sync after d, unless one is scheduled. Meanwhile the
// loop continues to check the tables.
func (l *syncLoop) schedule(d time.Duration) {
	if l.due == nil {
		l.due = time.After(d)
	}
}

// run runs a sync, and schedules another one if it fails.
func (l *syncLoop) run(what string, work func() error) {
	if !l.proxier.tracker.ready() {
		return
	}
	start := time.Now()
	err := l.proxier.health.during(work)
	l.last, l.rest = time.Now(), restAfter(time.Since(start))
	l.proxier.publish()
	if err != nil {
		l.delay = min(max(2*l.delay, retryFirst), retryLast)
		l.retry = time.After(l.delay)
		klog.ErrorS(err, what+" failed", "retryAfter", l.delay)
		return
	}
	l.delay, l.retry = 0, nil
	l.log(what, time.Since(start))
	if !l.synced {
		l.synced = true
		close(l.proxier.synced)
		klog.InfoS("Rules are in place", "elapsed", time.Since(start))
	}
}

// restAfter returns how long to wait after a sync: three times its duration, so
// that continuous changes use at most a quarter of one processor. The wait is
// limited to 0.1 s, so syncs of more than 33 ms use more.
func restAfter(sync time.Duration) time.Duration {
	const longest = 100 * time.Millisecond
	return min(3*sync, longest)
}

// log logs a sync, at most once a second.
func (l *syncLoop) log(what string, elapsed time.Duration) {
	if time.Since(l.logged) < time.Second {
		l.quiet++
		klog.V(4).InfoS(what+" complete", "elapsed", elapsed)
		return
	}
	klog.V(2).InfoS(what+" complete", "elapsed", elapsed, "othersSinceLastLogged", l.quiet)
	l.logged, l.quiet = time.Now(), 0
}

// check checks the tables. If a repair fails, the next sync tries again.
func (l *syncLoop) check() {
	if time.Now().Before(l.checkAfter) {
		return
	}
	if err := l.proxier.eachTable((*table.Table).Check); err != nil {
		klog.ErrorS(err, "Failed to check the tables", "retryAfter", publishPeriod)
		l.checkAfter = time.Now().Add(publishPeriod)
		l.proxier.Sync()
	}
	if time.Since(l.published) >= publishPeriod {
		l.published = time.Now()
		l.proxier.publish()
	}
}

// syncChanges passes the changes to the tables and syncs.
func (p *Proxier) syncChanges() error {
	p.handOver()
	return p.sink.Sync()
}

// resync does the same, and also tries service ports again that the kernel
// refused. It can run before the first sync.
func (p *Proxier) resync() error {
	p.handOver()
	return p.eachTable((*table.Table).Resync)
}

// maxTriggers limits the number of triggers that are kept, for the metric
// network_programming_duration_seconds, while syncs fail. Later ones are not
// observed.
const maxTriggers = 10_000

// handOver passes the changes to the tables.
func (p *Proxier) handOver() {
	for _, f := range p.families {
		taken := p.tracker.takeTriggers(f.table.Family())
		room := max(0, maxTriggers-len(f.triggers))
		f.triggers = append(f.triggers, taken[:min(len(taken), room)]...)
	}
	p.tracker.handOver(p.sink, p.node.current)
}
