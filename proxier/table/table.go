// Package table keeps the nftables tables "ip kube-proxy" and "ip6 kube-proxy"
// in the kernel equal to the state of a cluster.
//
// A Table is the cluster.Sink of one address family. It knows what Services
// mean for the table: which service port owns a frontend (claims.go), how much
// of a Service its budget covers (budgets.go), which ids clients with session
// affinity have (affinityids.go). A keep.Keeper keeps the table in the kernel
// equal to that: it asks for the plans of the service ports that changed
// (source.go), and writes, verifies and repairs them.
//
// Package ruleset computes the rows and chains. The package does not clean
// connection tracking: an Observer receives the changes that were committed.
package table

import (
	"net/netip"

	"k8s.io/klog/v2"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
	"github.com/nftproxy/nftproxy/proxier/table/keep"
)

// Config is the configuration of a Table.
type Config struct {
	// Rules is what the rules depend on.
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
	Open func() (keep.Kernel, error)
	// Limits are keep.DefaultLimits if they are nil.
	Limits *keep.Limits
}

// Table writes the table of one address family. It implements cluster.Sink.
// Only one goroutine may use a Table at a time. The Tables of one call of New
// can belong to different goroutines.
type Table struct {
	config  Config
	rules   *ruleset.Ruleset
	keeper  *keep.Keeper
	desired desired
	ids     affinityIDs
	started bool // keepOwners ran
	// timeouts are not read without RetryAfter.
	timeouts timeouts

	onDemand      []*nft.Set       // see source.OnDemand
	program       *ruleset.Program // that was last made
	nodePortAddrs []netip.Addr     // on which NodePorts listen in the kernel
	loopbackAddrs []netip.Addr     // on which only health checks listen
	stats         Stats
}

var _ cluster.Sink = (*Table)(nil)

// table returns the table in the kernel, by family and name.
func (t *Table) table() *nft.Table { return &nft.Table{Family: t.Family(), Name: ruleset.TableName} }

// Family returns the address family of the table.
func (t *Table) Family() nft.Family { return t.rules.Family() }

// name returns the name of the table for the log: ip kube-proxy.
func (t *Table) name() string { return t.Family().String() + " " + ruleset.TableName }

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

// UpToDate reports whether a sync succeeded since anything was set, and no
// service port is held back. Changes can still wait for their turns (see Next).
func (t *Table) UpToDate() bool {
	return t.keeper.UpToDate() && len(t.desired.edited)+len(t.desired.fresh) == 0
}
