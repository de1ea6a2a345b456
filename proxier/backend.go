package proxier

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"k8s.io/klog/v2"

	"github.com/nftproxy/nftproxy/nft"
)

// Backend writes the table of one address family. It is the Sink at the end of the way from the cluster's state to
// the kernel: it knows what the state is, what of it is in the kernel, and writes the difference. It belongs to one goroutine.
type Backend struct {
	config *Config
	kernel kernel
	layout *layout
	render renderer
	ids    affinityIDs
	batch  *nft.Batch
	flows  flowCleaner // nil if flows are not cleaned
	udp    *udpVIPs
	health healthServer // nil if there is none

	// What was told.
	node      *Node
	services  map[ServiceName]*serviceState
	ports     map[uint32]*portState // by tag
	lastTag   uint32
	claims    claims
	lost      []conflict            // since the last sync
	conflicts map[conflict]struct{} // that were told
	refused   map[*portState]struct{}
	dirty     map[*serviceState]struct{}
	newNode   bool // SetNode was called

	// What is in the kernel, as far as it was committed. What service ports have there is in their portState.
	table    *nft.Table // sets and program; nil before the first sync
	nodeRows []nft.Row  // the rows about this node
	// nodePortAddrs are the addresses on which NodePorts listen.
	nodePortAddrs []netip.Addr
	balancers     map[string]struct{} // names of balancer chains
	shared        sharedRows
	garbage       garbage
	watch         watch
	// generation is shared with the other backends of a Proxier.
	generation *generation
	inDoubt    string // why what is in the kernel may not be what was committed; "" if there is no doubt

	candidates []candidate // of the plan that is made, in a buffer that is used again
	rows       rowCount
	noLocal    noLocal
	triggers   []time.Time // when changes were triggered that no sync carried out yet
	metrics    *syncMetrics
	stats      Stats
}

// kernel is what a Backend needs of nft.Conn.
type kernel interface {
	Commit(*nft.Batch) error
	Generation() (uint32, error)
	TableHandle(*nft.Table) (handle uint64, ok bool, err error)
	Chains(*nft.Table) ([]nft.Found, error)
	Sets(*nft.Table) ([]nft.Found, error)
	Rules(t *nft.Table, chain string) ([]nft.Found, error)
	Targets(*nft.Table) ([]nft.FoundTarget, error)
	Close() error
}

// Stats counts what a Backend did since it was made.
type Stats struct {
	// Transactions are those that the kernel carried out, Rewrites those syncs that wrote everything anew.
	Transactions, Rewrites int
	// RowsWritten and BytesWritten are the rows added and deleted, and the netlink bytes, of those transactions.
	RowsWritten, BytesWritten int
	// CommitTime is the time that the kernel took for them.
	CommitTime time.Duration
	// Repairs are the rewrites that were needed because another program changed the table.
	Repairs int
	// Conflicts counts how often a service port lost a frontend to another one, Refusals how often the kernel refused one.
	Conflicts, Refusals int
}

// NewBackend returns the Sink that writes the table of a family. Setup connects it to the kernel.
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
		balancers:  make(map[string]struct{}),
		udp:        newUDPVIPs(),
		shared:     make(sharedRows),
		garbage:    make(garbage),
		generation: new(generation),
		rows:       newRowCount(),
		metrics:    newKubeProxyMetrics().of(family),
	}
	b.Reset()
	b.doubt("first sync")
	return b, nil
}

// Setup implements Sink: it connects to nf_tables in the network namespace of the calling thread.
func (b *Backend) Setup() error {
	conn, err := nft.Open()
	if err != nil {
		return err
	}
	b.kernel = conn
	return b.recoverAffinity()
}

// Close closes the connection to the kernel. The table stays.
func (b *Backend) Close() error {
	if b.kernel == nil {
		return nil
	}
	return b.kernel.Close()
}

// Stats returns what was done so far.
func (b *Backend) Stats() Stats { return b.stats }

// doubt makes the next sync write everything anew.
func (b *Backend) doubt(why string) { b.inDoubt = why }

// Sync implements Sink. Its cost is the cost of what changed, unless something made it doubt what the kernel has: then
// everything is written anew, in one transaction if packets already go by the table.
func (b *Backend) Sync() error {
	if b.kernel == nil {
		return fmt.Errorf("sync %s: Setup was not called or failed", b.layout.family)
	}
	b.reportConflicts()
	if b.inDoubt == "" {
		return b.timed(b.update)
	}
	klog.V(2).InfoS("Writing the whole table", "family", b.layout.family, "reason", b.inDoubt)
	return b.timed(b.rewrite)
}

// timed does a sync and publishes how it went.
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

// programConfig returns what the program depends on now.
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

// sorted returns Services in the order of their names.
func sorted(services []*serviceState) []*serviceState {
	slices.SortFunc(services, func(a, b *serviceState) int { return compareServiceNames(a.name, b.name) })
	return services
}

// commit sends the batch and counts.
func (b *Backend) commit() error {
	start := time.Now()
	if err := b.kernel.Commit(b.batch); err != nil {
		return err
	}
	b.rows.commit()
	b.stats.CommitTime += time.Since(start)
	b.stats.Transactions++
	b.stats.RowsWritten += b.batch.Rows()
	b.stats.BytesWritten += b.batch.Len()
	return nil
}
