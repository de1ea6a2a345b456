// Package packet proves by packets what the kube-proxy command does for Services.
//
// Each test makes a small cluster network out of network namespaces (package
// lab), runs the real command in both nodes, gives it manifests, and looks at what
// becomes of connections: which endpoint answered, which source address it saw,
// whether an attempt was refused or lost. The command is the test program itself,
// started once more (TestMain).
//
//	scenario ─► YAML ─► kube-proxy in node1 and node2 ─► rules
//	    │                                                  ▲
//	    └─► checks: from ─► address ───── packets ─────────┘─► endpoints
//
// Most of what is to be shown stands in tables of scenarios: a Service, its
// endpoints, and lines such as
//
//	client pod1 -> clusterIP externalIP => a1 as node1, b1 as itself
//
// that are tried over TCP and UDP, IPv4 and IPv6. To cover one more case, add an
// entry. What scenarios cannot say, how things change under traffic, is a test
// function of its own.
//
// The package owns the packet tests and what they need only. It looks at tables
// through the nft program; how the command writes them is the matter of package
// proxier and its tests.
//
// The tests need root, and Linux 5.10 or later with br_netfilter. They never assert
// how long something takes: they wait for effects, up to a deadline that a slow
// emulated machine keeps.
package packet
