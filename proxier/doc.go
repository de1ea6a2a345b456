// Package proxier turns Services and EndpointSlices into the rows and rules of the
// nftables tables "ip kube-proxy" and "ip6 kube-proxy", and keeps them so.
//
//	Proxier                      On…Add/Update/Delete, Sync, SyncLoop
//	  tracker, nodeTracker       front end: API objects ─► plain structs, changes since the last sync
//	     │
//	     ▼  Sink                 SetService, SetEndpoints, …, Sync: the seam for any other source
//	  Backend (one a family)     back end: the desired state, what the kernel has, and the difference
//	     ├─ claims               which service port has an address and port that several ask for
//	     ├─ makePlan             a service port, its endpoints, this node ─► plan
//	     ├─ renderer             plan ─► rows and chains, pure
//	     ├─ update, rewrite      the difference, or everything ─► one transaction of package nft
//	     └─ verify, scrub        changes of the table by other programs ─► repair
//
// The ruleset has two parts. The program (program.go) is chains and rules that
// depend on the configuration of the node only. The rows are elements of a fixed
// number of sets and maps (layout.go): Services become rows. A change of a Service
// is a few rows added and deleted in one transaction, and costs the same with ten
// Services or ten thousand. For example, a Service default/web with ClusterIP
// 10.96.0.10, port 80, and three endpoints is
//
//	set cluster-ips             10.96.0.10
//	map service-ips             10.96.0.10 . tcp . 80 comment "default/web:http" : goto balance-3
//	map service-endpoints       10.96.0.10 . tcp . 80 . 0 : 10.244.1.5 . 8080
//	                            10.96.0.10 . tcp . 80 . 1 : 10.244.2.5 . 8080
//	                            10.96.0.10 . tcp . 80 . 2 : 10.244.3.5 . 8080
//
// where the chain balance-3 is one rule that all Services with three endpoints
// share:
//
//	dnat ip to ip daddr . meta l4proto . th dport . numgen random mod 3 map @service-endpoints
//
// Two kinds of chains depend on Services: balancers, one for each number of
// endpoints in use, and the chains of service ports with session affinity.
//
// What counts as being in the kernel changes only after a commit succeeded. After
// any doubt, such as a lost answer, everything is written in one transaction, while
// packets keep passing the old rows.
//
// A program of your own can drive a Proxier with objects of the Kubernetes API, or
// a Backend, by the Sink interface, with plain structs:
//
//	config := proxier.Config{NodeName: "box"}
//	backend, err := proxier.NewBackend(&config, nft.IPv4)
//	…
//	err = backend.Setup()
//	backend.SetService(&proxier.Service{…})
//	backend.SetEndpoints(name, "my source", []*proxier.Endpoint{…})
//	err = backend.Sync()
//	…
//	err = backend.Check() // repeatedly: repairs what other programs changed
//
// The package does not read the API (see informer and manifest) and does not
// encode netlink messages (see nft). It follows the addresses of this node itself.
package proxier
