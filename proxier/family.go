package proxier

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/nftproxy/nftproxy/healthcheck/connlimit"
	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/table"
)

// family is the part of a Proxier for one address family. Its loop is the only
// goroutine that uses the table (see syncLoop). A family that fails or hangs
// does not delay the other one.
type family struct {
	proxier *Proxier
	table   *table.Table
	health  *health
	checks  *healthChecks
	// localhost is nil unless NodePorts are served on localhost.
	localhost *localhostPorts
	// connections is nil unless connections to Services are counted.
	connections *serviceConnections
	wake        chan struct{}
	queries     chan func() // the loop runs them between syncs
	// triggers are the times of changes that no sync has made effective yet.
	triggers []time.Time
	lastSync atomic.Pointer[lastSync]    // nil before the first
	stats    atomic.Pointer[table.Stats] // of the last publish
}

// lastSync is a sync and the time of its end.
type lastSync struct {
	table.SyncResult
	ended time.Time
}

// newFamily returns the part for a table. NodePorts on localhost of all
// families share the limit.
func newFamily(
	p *Proxier, t *table.Table, events cluster.EventRecorder, limit *connlimit.Limit[uint16],
) (*family, error) {
	checks, err := newHealthChecks(p.config, events, p.Healthy)
	if err != nil {
		return nil, err
	}
	ports, err := newLocalhostPorts(p.config, events, t.Family(), limit)
	if err != nil {
		return nil, err
	}
	connections, err := newServiceConnections(&p.counters, p.config.rules(), t.Family())
	if err != nil {
		return nil, err
	}
	if connections != nil {
		p.metrics.add(connections)
	}
	f := &family{
		proxier: p, table: t, health: &health{patience: 2 * p.config.syncPeriod()},
		checks: checks, localhost: ports, connections: connections,
		wake: make(chan struct{}, 1), queries: make(chan func()),
	}
	f.publish()
	return f, nil
}

// name returns the name of the family in the API: IPv4 or IPv6.
func (f *family) name() string { return apiFamily(f.table.Family()) }

// familyOf returns the state of an address family, nil if the Proxier does not
// serve it.
func (p *Proxier) familyOf(f nft.Family) *family {
	i := slices.IndexFunc(p.families, func(have *family) bool { return have.table.Family() == f })
	if i < 0 {
		return nil
	}
	return p.families[i]
}

// request requests a sync.
func (f *family) request() {
	if f.proxier.tracker.late(f.table.Family()) {
		f.health.changed()
	}
	f.proxier.metrics.lastQueued.WithLabelValues(f.name()).SetToCurrentTime()
	select {
	case f.wake <- struct{}{}:
	default: // a sync is already requested
	}
}

// publish makes the present numbers of the table visible.
func (f *family) publish() {
	stats := f.table.Stats()
	f.stats.Store(&stats)
}

// sync passes the changes to the table and syncs.
func (f *family) sync() error {
	f.handOver()
	return f.table.Sync()
}

// resync does the same, and also tries service ports again that the kernel
// refused. It can run before the first sync.
func (f *family) resync() error {
	f.handOver()
	return f.table.Resync()
}

// maxTriggers limits the number of triggers that are kept, for the metric
// network_programming_duration_seconds, while syncs fail. Later ones are not
// observed.
const maxTriggers = 10_000

// handOver passes the changes to the table.
func (f *family) handOver() {
	changes := f.proxier.tracker.take(f.table.Family())
	room := max(0, maxTriggers-len(f.triggers))
	f.triggers = append(f.triggers, changes.triggers[:min(len(changes.triggers), room)]...)
	changes.passTo(f.table, f.proxier.node.current)
}
