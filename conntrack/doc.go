// Package conntrack lists and deletes flows in the kernel's connection tracking
// table. It finds the flows that become stale when the endpoints of UDP
// services change. It also sets the size and the timeouts of the table
// ([Settings]).
//
// A UDP flow lives as long as its packets keep coming. The NAT rules do not see
// the packets of a known flow. So a client that keeps its source port stays
// with an endpoint that is gone, or with no endpoint, until its flow is
// deleted. TCP does not need this: its peers detect that the connection is
// dead.
//
// The package owns the communication with ctnetlink (nfnetlink_conntrack.h),
// the UDP frontends and the decision which flows are stale ([Change]), and the
// goroutine that deletes them ([Cleaner]). It does not know Services, does not
// write rules, and does not log: it reports results to a callback.
//
// # Cost of a pass
//
// Without changes, no requests are sent to the kernel. A pass lists the flows
// to the changed frontends only, with the kernel's dump filter (CTA_FILTER,
// Linux 5.8). It decodes a 64 KiB buffer message by message, and deletes stale
// flows in small batches while the dump continues, so its memory does not
// depend on the size of the table. It applies each filter again in user space:
// a filter that the kernel ignores only costs time.
//
// The tests of this package found the filters that kernels 5.10, 6.1, 6.12 and
// 6.18 apply. All filter by family, protocol, ports, IPv4 addresses and mark;
// 6.1 and later also by status; 6.12 and later also by zone. Filters by IPv6
// address are unreliable: 5.10.223, 6.1.192 and 6.18.44 invert the comparison
// and send all flows except the requested ones, while 6.12.117 is correct. So
// an IPv6 address is never sent to the kernel.
//
// # Network namespace
//
// [Open] opens its sockets in the network namespace of the calling thread. They
// stay there, whichever thread uses them later.
package conntrack
