// Package lab builds a small cluster network out of network namespaces: the
// place where packet tests and the demonstration look at real packets.
//
//	        client 172.30.0.100, fd00:30::100
//	          │ eth0
//	┌─────────┴──────────┐
//	│ switch (a bridge)  │
//	└──┬──────────────┬──┘
//	   │ eth0         │ eth0
//	node1 .11       node2 .12          172.30.0.0/24, fd00:30::/64
//	   │ vethXXXX     │ vethXXXX
//	 pods           pods               10.244.N.0/24, fd00:244:N::/64
//
// Every box is a namespace of its own, held by a file descriptor; pods come and
// go while the lab runs. Pods are routed: the node has a host route to each of
// them, the other node and the client have routes to the node's pod ranges.
// The client reaches service addresses (ServiceRanges, ExternalRanges) through
// node1, or through the node that [Lab.RouteServicesVia] says. Nodes and pods
// have a default route that ends at the client, which does not forward: what
// nobody translates or answers is silently lost there.
//
// The lab owns namespaces, links, addresses, routes, the sysctls that these
// need, servers that tell which of them answered and which source address they
// saw, and probes that tell how one attempt ended. It knows nothing of services
// and writes no packet filter rules: that is what is under test.
//
// A lab needs root (CAP_SYS_ADMIN and CAP_NET_ADMIN), Linux 5.10 or later with
// veth and bridge, and /proc. It runs no other program and changes nothing in
// the namespace that it is made from. Labs of one or of several processes run
// side by side. A process that is killed leaves nothing behind but, for a named
// lab, files in /run/netns, which the next lab of that name takes away.
package lab
