package proxier

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/calm"
	"github.com/nftproxy/nftproxy/proxier/checker"
	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/follow"
	"github.com/nftproxy/nftproxy/proxier/history"
	"github.com/nftproxy/nftproxy/proxier/metric"
	"github.com/nftproxy/nftproxy/proxier/table"
	"github.com/nftproxy/nftproxy/proxier/table/keep"
)

// shared is the state that the families of a Proxier share. Any goroutine can
// use it.
type shared struct {
	config    *Config
	events    cluster.EventRecorder
	tracker   *tracker
	node      *nodeTracker
	metrics   *metrics
	history   *history.Log
	followers *follow.Followers // nil before setUp
	checker   *checker.Checker  // nil unless endpoints are checked
	calm      *calm.State
	patience  time.Duration // queryPatience, except in tests
	unsynced  atomic.Int32  // number of families without a successful sync
	allSynced chan struct{} // closed when it is 0
}

// family serves one address family of a Proxier. Its loop is the only goroutine
// that uses the table (see syncLoop). A family that fails or hangs does not
// delay the other one.
type family struct {
	*shared
	table   *table.Table
	health  *health
	wake    chan struct{}
	queries chan func() // the loop runs them between syncs
	written writtenPorts
	// triggers are the times of changes that no sync has made effective yet.
	triggers  []time.Time
	lastSync  atomic.Pointer[SyncStatus]  // nil before the first
	lastWrite atomic.Pointer[SyncStatus]  // the last one that wrote
	stats     atomic.Pointer[table.Stats] // of the last publish
}

func newFamily(s *shared, t *table.Table) *family {
	f := &family{
		shared: s, table: t, health: &health{patience: 2 * s.config.syncPeriod()},
		wake: make(chan struct{}, 1), queries: make(chan func()),
	}
	f.publish()
	s.metrics.Add(func(ch chan<- prometheus.Metric) {
		state, _ := f.health.state()
		collectTable(metric.Values{Family: t.Family(), To: ch}, f.stats.Load(), state.Healthy)
	})
	return f
}

// name returns the name of the family in the API: IPv4 or IPv6.
func (f *family) name() string { return f.table.Family().Name() }

// families are the address families that a Proxier serves.
type families []*family

// of returns the state of an address family, nil if it is not served.
func (all families) of(f nft.Family) *family {
	for _, have := range all {
		if have.table.Family() == f {
			return have
		}
	}
	return nil
}

// request requests a sync.
func (f *family) request() {
	f.calm.Disturb(time.Now())
	if f.tracker.late(f.table.Family()) {
		f.health.changed()
	}
	f.metrics.lastQueued.WithLabelValues(f.name()).SetToCurrentTime()
	signal(f.wake)
}

// signal sends to a channel, unless it is full.
func signal(to chan<- struct{}) {
	select {
	case to <- struct{}{}:
	default:
	}
}

// observe is the table.Observer.
func (all *families) observe(of nft.Family, e table.Event) {
	f := all.of(of)
	f.followers.Observe(of, e)
	switch e := e.(type) {
	case *table.Commit:
		f.written.add(e)
		if f.checker != nil {
			f.checker.Observe(e)
		}
	case keep.SyncResult:
		f.ended(e)
	}
}

// ended records a sync.
func (f *family) ended(r keep.SyncResult) {
	f.metrics.synced(r)
	last := &SyncStatus{Ended: r.Ended, Seconds: r.Duration.Seconds(), Cause: r.Cause, Whole: r.Full}
	if r.Err != nil {
		last.Error = r.Err.Error()
	}
	f.lastSync.Store(last)
	if r.Transactions > 0 {
		last.Transactions, last.Rows = r.Transactions, r.Rows
		f.lastWrite.Store(last)
	}
	if r.Err == nil {
		f.metrics.programmed(r.Family, f.triggers)
		f.triggers = f.triggers[:0]
	}
}

// publish makes the present numbers of the table visible.
func (f *family) publish() {
	stats := f.table.Stats()
	f.stats.Store(&stats)
}

// handOver passes changes to the table that cost at most limit. If some are
// left, wait is the time until they should be handed over.
func (f *family) handOver(limit int) (wait time.Duration, left bool) {
	changes, wait, left := f.tracker.take(f.table.Family(), limit, f.table)
	room := max(0, maxTriggers-len(f.triggers))
	f.triggers = append(f.triggers, changes.triggers[:min(len(changes.triggers), room)]...)
	changes.passTo(f.table, f.node.current)
	return wait, left
}
