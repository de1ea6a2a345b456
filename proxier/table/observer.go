package table

import (
	"net/netip"
	"slices"
	"time"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
)

// Observer is notified of syncs and commits of each Table, by the goroutine
// that uses the Table.
type Observer interface {
	// Committed is called after each transaction that changed Services or this
	// node. It must not keep or modify the Commit.
	Committed(*Commit)
	// Synced is called at the end of each sync, also of one that repairs the
	// table.
	Synced(SyncResult)
}

// Commit describes a transaction that the kernel carried out.
type Commit struct {
	Family nft.Family
	// Whole reports whether the transaction wrote everything. Then Changes
	// contains all service ports, and Services all Services.
	Whole bool
	// Changes are the service ports that changed.
	Changes []Change
	// Services are the Services that changed.
	Services []ServiceChange
	// NodePortAddrs are the addresses on which NodePorts listen. The
	// unspecified address stands for all. NodePortAddrsChanged reports whether
	// they changed.
	NodePortAddrs        []netip.Addr
	NodePortAddrsChanged bool
}

// Change is the change of a service port. Before is nil if the kernel had
// nothing of it, After is nil if the kernel has nothing of it now.
type Change struct{ Before, After *ruleset.Plan }

// ServiceChange is the change of a Service.
type ServiceChange struct {
	Name cluster.ServiceName
	// Service is nil if the Service was deleted.
	Service *cluster.Service
	// ReadyEndpoints is the number of ready endpoints on this node. It is
	// counted for Services with a health-check NodePort only.
	ReadyEndpoints int
}

// SyncResult describes a sync that ended.
type SyncResult struct {
	Family nft.Family
	// Cause is why the sync ran: changes, periodic, or the reason to write the
	// whole table.
	Cause    string
	Duration time.Duration
	// Full reports whether the sync wrote, or tried to write, the whole table.
	Full bool
	Err  error
}

// notify notifies the observer of a committed transaction, after which these
// Services have no change that is not written.
func (t *Table) notify(tx *transaction, done []*serviceState, nodePortAddrsBefore []netip.Addr) {
	if t.config.Observer == nil {
		return
	}
	c := &Commit{
		Family: t.Family(), Whole: tx.whole, NodePortAddrs: t.committed.nodePortAddrs,
		NodePortAddrsChanged: !slices.Equal(nodePortAddrsBefore, t.committed.nodePortAddrs),
		Changes:              make([]Change, 0, len(tx.changes)),
		Services:             make([]ServiceChange, 0, len(done)),
	}
	for _, change := range tx.changes {
		c.Changes = append(c.Changes, Change{change.before, change.next})
	}
	for _, s := range done {
		change := ServiceChange{Name: s.name, Service: s.spec}
		if s.spec != nil && s.spec.HealthCheckNodePort != 0 {
			change.ReadyEndpoints = s.readyOn(t.desired.node)
		}
		c.Services = append(c.Services, change)
	}
	t.config.Observer.Committed(c)
}

// readyOn returns the number of ready endpoints on a node. Those in a service
// CIDR do not count, because the rules do not use them, and as in kube-proxy,
// those of an EndpointSlice without ports do not count.
func (s *serviceState) readyOn(node *cluster.Node) int {
	ready := make(map[netip.Addr]struct{})
	for _, e := range s.endpoints {
		if e.Ready && e.Node == node.Name && len(e.Ports) > 0 && !node.IsServiceAddr(e.Addr) {
			ready[e.Addr] = struct{}{}
		}
	}
	return len(ready)
}
