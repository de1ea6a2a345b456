package proxier

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"k8s.io/klog/v2"

	"github.com/nftproxy/nftproxy/nft"
)

// Backend writes the table of one address family. It is the Sink at the end of the
// way from the state of the cluster to the kernel: it knows the state and what the
// kernel has of it, and writes the difference. It belongs to one goroutine.
type Backend struct {
	config *Config
	kernel kernel
	layout *layout
	render renderer
	ids    affinityIDs
	batch  *nft.Batch
	flows  flowCleaner  // nil if flows are not cleaned
	health healthServer // nil if there is none

	// The desired state.
	node      *Node
	services  map[ServiceName]*serviceState
	ports     map[uint32]*portState // by tag
	lastTag   uint32
	claims    claims
	lost      []conflict            // since the last sync
	conflicts map[conflict]struct{} // that were reported
	refused   map[*portState]struct{}
	dirty     map[*serviceState]struct{}
	newNode   bool // SetNode was called

	// have is what the kernel has, as far as it was committed.
	have    *committed
	garbage garbage
	// inDoubt is why the kernel may not have what was committed, "" if there is no
	// doubt.
	inDoubt string

	// What is known of changes by other programs.
	generation  *generation  // shared with the other backends of a Proxier
	verified    int          // generation.foreign when the table was last verified
	fingerprint *fingerprint // of the table as it was committed
	scrubber    scrubber
	repairs     repairs
	monitor     *nft.Monitor // nil if it could not be opened
	listening   atomic.Bool  // whether nameOthers is at work

	candidates []candidate // of the plan that is being made, in a buffer that is used again
	noLocal    noLocal
	triggers   []time.Time // when changes were triggered that no sync carried out yet
	metrics    *syncMetrics
	stats      Stats
}

// kernel is what a Backend needs of nft.Conn.
type kernel interface {
	Commit(*nft.Batch) error
	Generation() (uint32, error)
	Snapshot(read func() error) (generation uint32, err error)
	FindTable(*nft.Table) (found nft.FoundTable, ok bool, err error)
	Chains(*nft.Table) ([]nft.FoundChain, error)
	FindChain(t *nft.Table, name string) (found nft.FoundChain, ok bool, err error)
	Sets(*nft.Table) ([]nft.FoundSet, error)
	Rules(t *nft.Table, chain string) ([]nft.FoundRule, error)
	RuleHandles(t *nft.Table, chain string) ([]uint64, error)
	FindRows(*nft.Table, []nft.Row) ([]nft.Row, error)
	Rows(*nft.Table, *nft.Set) ([]nft.Row, error)
	Port() (uint32, error)
	Close() error
}

// Stats counts what a Backend did since it was made.
type Stats struct {
	// Transactions are those that the kernel carried out, Rewrites the syncs that
	// wrote everything.
	Transactions, Rewrites int
	// RowsWritten and BytesWritten are the rows added and deleted, and the netlink
	// bytes, of those transactions.
	RowsWritten, BytesWritten int
	// CommitTime is the time that the kernel took for them.
	CommitTime time.Duration
	// Repairs are the repairs of changes by other programs.
	Repairs int
	// Conflicts counts how often a service port lost a frontend to another one,
	// Refusals how often the kernel refused one.
	Conflicts, Refusals int
}

// NewBackend returns the Sink that writes the table of a family. Setup connects it
// to the kernel.
func NewBackend(config *Config, family nft.Family) (*Backend, error) {
	if err := config.validate(); err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	if !family.Valid() {
		return nil, fmt.Errorf("address family %d is not supported", family)
	}
	l := newLayout(family)
	b := &Backend{
		config:     config,
		layout:     l,
		render:     renderer{layout: l, mark: 1 << config.masqueradeBit()},
		ids:        newAffinityIDs(),
		batch:      nft.NewBatch(&nft.Table{Family: family, Name: TableName}),
		node:       &Node{Name: config.NodeName, IPs: config.NodeIPs},
		have:       newCommitted(),
		garbage:    make(garbage),
		generation: &generation{ours: make(map[uint32]bool)},
		repairs:    repairs{count: make(map[damageKind]int)},
		metrics:    newKubeProxyMetrics().of(family),
	}
	b.Reset()
	b.doubt("first sync")
	return b, nil
}

// Setup implements Sink: it connects to nf_tables in the network namespace of the
// calling thread.
func (b *Backend) Setup() error {
	conn, err := nft.Open()
	if err != nil {
		return err
	}
	b.kernel = conn
	port, err := conn.Port()
	if err != nil {
		return err
	}
	b.generation.ours[port] = true
	b.openMonitor()
	b.recoverAffinity()
	return nil
}

// Close closes the connection to the kernel. The table stays.
func (b *Backend) Close() error {
	if b.kernel == nil {
		return nil
	}
	var err error
	if b.monitor != nil && !b.listening.Load() {
		err = b.monitor.Close()
	}
	return errors.Join(err, b.kernel.Close())
}

// Stats returns counts of what was done so far.
func (b *Backend) Stats() Stats {
	s := b.stats
	for _, n := range b.repairs.count {
		s.Repairs += n
	}
	return s
}

// doubt makes the next sync write everything.
func (b *Backend) doubt(why string) { b.inDoubt = why }

// Sync implements Sink. Its cost is that of what changed. If the kernel may not
// have what was committed, it writes everything, in one transaction if packets
// already pass the table.
func (b *Backend) Sync() error {
	if b.kernel == nil {
		return fmt.Errorf("sync %s: Setup was not called or failed", b.layout.family)
	}
	b.reportConflicts()
	b.reportInvalidEndpoints()
	if b.inDoubt == "" {
		return b.timed(b.update)
	}
	klog.V(2).InfoS("Writing the whole table", "table", b.tableName(), "reason", b.inDoubt)
	return b.timed(b.rewrite)
}

// Resync does a sync that tries again what the kernel refused before. Everything
// that another program may have changed is left to Check.
func (b *Backend) Resync() error {
	for p := range b.refused {
		b.markDirty(p.service)
	}
	return b.Sync()
}

// timed runs a sync and publishes its metrics.
func (b *Backend) timed(sync func() error) error {
	start, rewrites, doubt := time.Now(), b.stats.Rewrites, b.inDoubt != ""
	err := sync()
	b.metrics.synced(start, doubt || b.stats.Rewrites != rewrites, err)
	if err != nil {
		return err
	}
	for _, t := range b.triggers {
		b.metrics.programming.Observe(time.Since(t).Seconds())
	}
	b.triggers = b.triggers[:0]
	b.metrics.noLocalInternal.Set(float64(b.noLocal.internal))
	b.metrics.noLocalExternal.Set(float64(b.noLocal.external))
	return nil
}

// programConfig returns the present configuration of the program.
func (b *Backend) programConfig() *programConfig {
	f := b.layout.family
	c := &programConfig{
		layout:        b.layout,
		mark:          b.render.mark,
		masqueradeAll: b.config.MasqueradeAll,
		fromPod:       b.localMatch(),
	}
	for _, p := range b.node.ServiceCIDRs {
		if f.Of(p.Addr()) {
			c.serviceCIDRs = append(c.serviceCIDRs, p)
		}
	}
	primary, all := b.config.NodePortAddresses.of(f)
	c.nodePortsAll = all || (primary && len(b.nodePortIPs()) == 0)
	return c
}

// sorted sorts Services by name.
func sorted(services []*serviceState) []*serviceState {
	slices.SortFunc(services, func(a, b *serviceState) int { return compareServiceNames(a.name, b.name) })
	return services
}

// commit commits the batch and counts.
func (b *Backend) commit() error {
	start := time.Now()
	if err := b.kernel.Commit(b.batch); err != nil {
		return err
	}
	b.stats.CommitTime += time.Since(start)
	b.stats.Transactions++
	b.stats.RowsWritten += b.batch.RowCount()
	b.stats.BytesWritten += b.batch.Len()
	return nil
}
