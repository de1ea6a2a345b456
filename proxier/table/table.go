// Package table keeps the nftables tables "ip kube-proxy" and "ip6 kube-proxy"
// in the kernel equal to the state of a cluster.
//
// A Table is the cluster.Sink of one address family. It has three kinds of
// state:
//
//	desired    the state that the source passed: Services, endpoints and this node
//	committed  what the kernel has, as of the last commit that succeeded
//	observed   what was found out about changes by other programs
//
// It also has the ids of session affinity, the service ports that were refused,
// and the chains and sets that are no longer used.
//
// Sync plans the service ports that changed, and commits the difference between
// their committed and their new rows in one transaction. If the kernel may not
// have what was committed, for example after a lost answer, Sync writes
// everything in one transaction, while packets continue to use the old rows.
// Check verifies the table after commits of other programs, and repairs it.
//
// Package ruleset computes the rows and chains, and package nft encodes the
// transactions. The package does not clean connection tracking: an Observer
// receives the changes that were committed.
package table

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"k8s.io/klog/v2"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
)

// Config is the configuration of a Table.
type Config struct {
	// Rules is the part that the rules depend on.
	Rules ruleset.Config
	// OwnPorts are the addresses and TCP ports on which the proxy itself
	// listens. The unspecified address stands for all addresses of this node.
	OwnPorts []netip.AddrPort
	// Events receives warnings about Services, from the goroutine of each
	// Table. They are logged if it is nil.
	Events cluster.EventRecorder
	// Observer is notified of syncs and commits. nil means no notifications.
	Observer Observer
	// Open connects to the kernel. nil means nft.Open. Tests replace it to
	// inject faults.
	Open func() (Kernel, error)
}

// Table writes the table of one address family. It implements cluster.Sink.
// Only one goroutine may use a Table at a time. The Tables of one call of New
// can belong to different goroutines.
type Table struct {
	config Config
	rules  *ruleset.Ruleset
	kernel Kernel
	batch  *nft.Batch

	desired   desired
	committed *committed
	observed  observed

	ids      affinityIDs
	refusals refusals
	kept     kept
	failures int // updates in a row that failed without a service port that can be held back
	limits   limits
	part     part // of the present update
	unused   unused
	// coldBytes is maxColdBytes unless a test lowers it.
	coldBytes int
	// inDoubt is the reason why the kernel may not have what was committed, ""
	// without doubt.
	inDoubt      string
	rewriteCause RewriteCause // of inDoubt
	stats        Stats
}

var _ cluster.Sink = (*Table)(nil)

// Kernel is the part of nft.Conn that a Table uses.
type Kernel interface {
	Commit(*nft.Batch) error
	Generation() (uint32, error)
	Snapshot(read func() error) (generation uint32, err error)
	FindTable(*nft.Table) (found nft.FoundTable, ok bool, err error)
	Chains(*nft.Table) ([]nft.Chain, error)
	FindChain(t *nft.Table, name string) (found nft.Chain, ok bool, err error)
	Sets(*nft.Table) ([]nft.FoundSet, error)
	Counters(*nft.Table) ([]nft.Counter, error)
	Rules(t *nft.Table, chain string) ([]nft.Rule, error)
	RuleIDs(t *nft.Table, chain string) ([]nft.RuleID, error)
	FindRows(*nft.Table, []nft.Row) ([]nft.Row, error)
	Rows(*nft.Table, *nft.Set) ([]nft.Row, error)
	Port() (uint32, error)
	Close() error
}

var _ Kernel = (*nft.Conn)(nil)

// New returns a Table for each address family. The Tables share the generation
// of the ruleset, so that they do not take each other for other programs.
func New(config Config, families ...nft.Family) ([]*Table, error) {
	shared := &generation{busy: make(chan struct{}, 1)}
	if config.Open == nil {
		config.Open = func() (Kernel, error) { return nft.Open() }
	}
	var tables []*Table
	for _, f := range families {
		rules, err := ruleset.New(config.Rules, f)
		if err != nil {
			return nil, fmt.Errorf("configuration: %w", err)
		}
		t := &Table{
			config:    config,
			rules:     rules,
			batch:     newBatch(f),
			desired:   newDesired(f, &config),
			committed: newCommitted(),
			observed:  observed{generation: shared, repairs: repairs{count: make(map[DamageKind]int)}},
			ids:       newAffinityIDs(config.Rules.AffinitySeed),
			refusals:  make(refusals),
			kept:      make(kept),
			limits:    defaultLimits(),
			unused:    make(unused),
			coldBytes: maxColdBytes,
			stats:     Stats{Counters: Counters{RewriteCauses: make(map[RewriteCause]int)}},
		}
		t.doubt(rewriteStart, "first sync")
		tables = append(tables, t)
	}
	return tables, nil
}

func newBatch(f nft.Family) *nft.Batch {
	return nft.NewBatch(&nft.Table{Family: f, Name: ruleset.TableName})
}

// Family returns the address family of the table.
func (t *Table) Family() nft.Family { return t.rules.Family() }

// name returns the name of the table for the log: ip kube-proxy.
func (t *Table) name() string { return t.Family().String() + " " + ruleset.TableName }

// Setup implements cluster.Sink. It connects to nf_tables in the network
// namespace of the calling thread.
func (t *Table) Setup() error {
	conn, err := t.config.Open()
	if err != nil {
		return err
	}
	port, err := conn.Port()
	if err != nil {
		return errors.Join(err, conn.Close())
	}
	t.kernel = conn
	t.observed.generation.ports.Store(port, true)
	t.observed.monitor.open()
	t.recoverAffinity()
	return nil
}

// Close closes the connection to the kernel. The table stays.
func (t *Table) Close() error {
	if t.kernel == nil {
		return nil
	}
	return errors.Join(t.observed.monitor.close(), t.kernel.Close())
}

// SetNode implements cluster.Sink.
func (t *Table) SetNode(n *cluster.Node) { t.desired.setNode(n, t.rules.NodePortAddrs(n)) }

// SetService implements cluster.Sink. A Service without the family of the table
// is deleted.
func (t *Table) SetService(svc *cluster.Service) { t.desired.setService(svc) }

// DeleteService implements cluster.Sink.
func (t *Table) DeleteService(name cluster.ServiceName) { t.desired.deleteService(name) }

// SetEndpoints implements cluster.Sink. Endpoints of other families are
// ignored.
func (t *Table) SetEndpoints(name cluster.ServiceName, source string, endpoints []*cluster.Endpoint) {
	t.desired.setEndpoints(name, source, endpoints)
}

// doubt makes the next sync write everything. why is a reason for the log.
func (t *Table) doubt(cause RewriteCause, why string) { t.inDoubt, t.rewriteCause = why, cause }

// Sync implements cluster.Sink. Its cost depends on the number of changes. If
// the kernel may not have what was committed, Sync writes everything. Otherwise
// it may defer changes of heavy service ports (see Deferred).
func (t *Table) Sync() error { return t.sync(causeChanges) }

// Causes of syncs.
const (
	causeChanges  = "changes"
	causePeriodic = "periodic"
)

// sync syncs because of a cause. A doubt takes precedence over it.
func (t *Table) sync(cause string) error {
	if t.kernel == nil {
		return fmt.Errorf("sync %s: Setup was not called or failed", t.Family())
	}
	t.desired.mergeEndpoints()
	t.desired.applyBudgets()
	t.reportReduced()
	t.reportConflicts()
	t.reportInvalidEndpoints()
	t.retryRefused()
	if t.inDoubt == "" && len(t.committed.balancers) > t.committed.needed+maxUnused {
		t.doubt(rewriteUnused, "many balancers may be unused")
	}
	if t.inDoubt == "" {
		return t.timed(cause, t.updateInParts)
	}
	klog.V(2).InfoS("Writing the whole table", "table", t.name(), "reason", t.inDoubt)
	return t.timed(t.inDoubt, t.rewrite)
}

// Resync syncs like Sync, and also tries the service ports again that the
// kernel refused. Check repairs what other programs changed; Resync does not.
func (t *Table) Resync() error {
	for p := range t.refusals {
		t.desired.markDirty(p.service)
	}
	t.unused.retry()
	return t.sync(causePeriodic)
}

// timed runs a sync and notifies the observer of its result.
func (t *Table) timed(cause string, sync func() error) error {
	start, rewrites, full := time.Now(), t.stats.Rewrites, t.inDoubt != ""
	err := sync()
	if o := t.config.Observer; o != nil {
		full = full || t.stats.Rewrites != rewrites || t.inDoubt != ""
		o.Synced(SyncResult{Family: t.Family(), Cause: cause, Duration: time.Since(start), Full: full, Err: err})
	}
	return err
}

// UpToDate reports whether the kernel has everything that was set, apart from
// changes that are deferred.
func (t *Table) UpToDate() bool {
	for s := range t.desired.dirty {
		if !s.deferred {
			return false
		}
	}
	return t.inDoubt == "" && !t.desired.nodeChanged && len(t.desired.edited) == 0
}

// commit commits the batch and counts it.
func (t *Table) commit() error {
	start := time.Now()
	if err := t.kernel.Commit(t.batch); err != nil {
		return err
	}
	t.stats.CommitTime += time.Since(start)
	t.stats.Transactions++
	t.stats.RowsWritten += t.batch.RowCount()
	t.stats.BytesWritten += t.batch.Len()
	return nil
}

// record passes an event to the recorder. Without a recorder, it is logged.
func (t *Table) record(e cluster.Event) {
	if t.config.Events == nil {
		LogEvent(e)
		return
	}
	t.config.Events.Record(e)
}

// LogEvent logs an event.
func LogEvent(e cluster.Event) {
	klog.InfoS("Warning", "kind", e.Kind, "object", klog.KRef(e.Namespace, e.Name), "reason", e.Reason, "note", e.Note)
}
