package table

import (
	"net/netip"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
)

// Observer is called with what happened to the table of a family, by the
// goroutine that uses the Table.
type Observer func(nft.Family, Event)

// Event is what a Table reports:
//
//	*Commit          after each transaction that changed Services or this node. It must not be kept or modified.
//	Refusal          once when a service port can no longer be updated, in a sync
//	keep.SyncResult  at the end of each sync, also of one that repairs the whole table
//	*keep.Damage     after a repair of rows or chains, which is no sync
//	keep.Blame       by another goroutine
type Event any

// Refusal is a service port that can no longer be updated, and why.
type Refusal struct {
	Service cluster.ServiceName
	Port    cluster.ServicePort
	Why     error
}

// Commit describes a transaction that the kernel carried out.
type Commit struct {
	Family nft.Family
	// Whole reports whether the transaction wrote everything. Then Changes
	// contains all service ports, and Services all Services.
	Whole bool
	// Changes are the service ports that changed.
	Changes []PortChange
	// Services are the Services that changed.
	Services []ServiceChange
	// NodePortAddrs are the addresses on which NodePorts listen. The
	// unspecified address stands for all. NodePortAddrsChanged reports whether
	// they changed.
	NodePortAddrs        []netip.Addr
	NodePortAddrsChanged bool
	// LoopbackAddrs are the loopback addresses on which health checks listen,
	// too.
	LoopbackAddrs []netip.Addr
}

// PortChange is the change of a service port. Before is nil if the kernel had
// nothing of it, After is nil if the kernel has nothing of it now.
type PortChange struct{ Before, After *ruleset.Plan }

// ServiceChange is the change of a Service.
type ServiceChange struct {
	Name cluster.ServiceName
	// Service is nil if the Service was deleted.
	Service *cluster.Service
	// HealthCheckNodePort is the health-check NodePort that the Service owns, 0
	// if there is none.
	HealthCheckNodePort uint16
	// ReadyEndpoints is the number of ready endpoints on this node. It is
	// counted for Services with such a port only.
	ReadyEndpoints int
}
