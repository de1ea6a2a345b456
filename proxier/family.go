package proxier

import (
	"sync/atomic"
	"time"

	"github.com/nftproxy/nftproxy/healthcheck/connlimit"
	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/table"
	"github.com/nftproxy/nftproxy/proxier/table/keep"
)

// family is the part of a Proxier for one address family. Its loop is the only
// goroutine that uses the table (see syncLoop). A family that fails or hangs
// does not delay the other one.
type family struct {
	*shared
	table     *table.Table
	health    *health
	localhost *localhostPorts // nil unless NodePorts are served on localhost
	parts     []part          // that follow the commits
	wake      chan struct{}
	queries   chan func() // the loop runs them between syncs
	// triggers are the times of changes that no sync has made effective yet.
	triggers []time.Time
	lastSync atomic.Pointer[Sync]        // nil before the first
	stats    atomic.Pointer[table.Stats] // of the last publish
}

// newFamily returns the part for a table. Health checks fail while healthy
// returns false. NodePorts on localhost of all families share the limit.
func newFamily(
	s *shared, t *table.Table, healthy func() bool, limit *connlimit.Limit[uint16],
) (*family, error) {
	f := &family{
		shared: s, table: t, health: &health{patience: 2 * s.config.syncPeriod()},
		wake: make(chan struct{}, 1), queries: make(chan func()),
	}
	checks, err := newHealthChecks(s.config, s.events, healthy)
	if err != nil {
		return nil, err
	}
	f.parts = append(f.parts, checks, newBalanceEvents(s.events))
	if s.config.Rules.Localhost(t.Family()) {
		if f.localhost, err = newLocalhostPorts(s.config, s.events, t.Family(), limit); err != nil {
			return nil, err
		}
		f.parts = append(f.parts, f.localhost)
	}
	if s.config.Rules.ServiceMetrics.Enabled() {
		connections, err := newServiceConnections(&s.counters, s.config.Rules, t.Family())
		if err != nil {
			return nil, err
		}
		f.parts = append(f.parts, connections)
		s.metrics.add(connections.collect)
	}
	f.publish()
	return f, nil
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

// ended records a sync.
func (f *family) ended(r keep.SyncResult) {
	f.metrics.synced(r)
	last := &Sync{Ended: time.Now(), Seconds: r.Duration.Seconds(), Cause: r.Cause, Whole: r.Full}
	if r.Err != nil {
		last.Error = r.Err.Error()
	}
	f.lastSync.Store(last)
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

// maxTriggers limits the number of triggers that are kept, for the metric
// network_programming_duration_seconds, while syncs fail. Later ones are not
// observed.
const maxTriggers = 10_000

// handOver passes the changes to the table.
func (f *family) handOver() {
	changes := f.tracker.take(f.table.Family())
	room := max(0, maxTriggers-len(f.triggers))
	f.triggers = append(f.triggers, changes.triggers[:min(len(changes.triggers), room)]...)
	changes.passTo(f.table, f.node.current)
}
