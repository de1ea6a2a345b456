// Package lab builds a small cluster network out of network namespaces, for
// packet tests, benchmarks and the demo.
//
//	        client 172.30.0.100, fd00:30::100
//	          │ eth0
//	┌─────────┴──────────┐
//	│ switch (a bridge)  │
//	└──┬──────────────┬──┘
//	   │ eth0         │ eth0
//	node1 .11       node2 .12          172.30.0.0/24, fd00:30::/64
//	   │ veth1, …     │ veth1, …
//	 pods           pods               10.244.N.0/24, fd00:244:N::/64
//
// Each box is a network namespace that a file descriptor holds. Pods can be
// added and removed while the lab runs. A node has a host route to each of
// its pods; the other node and the client have routes to its pod ranges. The
// client reaches ServiceRanges and ExternalRanges through node1. The default
// route of nodes and pods leads to the client, which does not forward:
// packets that nothing translates or answers are lost there.
//
// The package owns namespaces, links, addresses, routes and the sysctls that
// these need, servers that answer with their name and the source address that
// they saw, and probes that report how an attempt ended. It does not know
// Services and writes no packet filter rules.
//
// A lab needs root (CAP_SYS_ADMIN and CAP_NET_ADMIN), /proc, and Linux 5.10
// or later with veth and bridge. It runs no other program, and changes
// nothing in the namespace in which it is created. Labs of one or of several
// processes can run at the same time. A killed process leaves nothing behind,
// except for the names of a named lab in /run/netns: the next lab with that
// name removes them.
package lab
