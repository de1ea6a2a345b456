// Package proxier serves the Services of a Kubernetes cluster on one node. It
// writes the nftables tables "ip kube-proxy" and "ip6 kube-proxy", and keeps
// them up to date.
//
//	informer, manifest    sources: the Kubernetes API, or a folder of manifests
//	   │ objects
//	   ▼
//	Proxier               On…Add/Update/Delete, Sync, SyncLoop
//	   │                  tracker, nodeTracker: changes since the last sync
//	   │ plain structs (package cluster, built by package translate)
//	   ▼ cluster.Sink
//	table.Table           one per address family: what Services mean for a table
//	   │ plans, rows and chains (package ruleset)
//	   ▼ keep.Source
//	keep.Keeper           transactions, failures, repairs
//	   │
//	   ▼
//	nft                   netlink
//
// Package follow does what follows the commits of the tables, for example the
// deletion of flows whose endpoint was removed; package history keeps the last
// changes. Packages ejector and checker find endpoints that answer nothing, or
// fail health checks. A Proxier also follows the addresses of the node, and has
// metrics.
//
// A program can pass objects of the Kubernetes API to a Proxier, or plain
// structs to the tables (see table.New):
//
//	p, err := proxier.NewDualStackProxier(proxier.Config{NodeName: "node1"})
//	…
//	go p.SyncLoop(ctx)
//	p.OnServiceAdd(service)
//	p.OnEndpointSliceAdd(slice)
//	p.OnServiceSynced()
//	p.OnEndpointSlicesSynced()
package proxier
