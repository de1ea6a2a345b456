// Package conntrack lists and deletes flows of the kernel's connection tracking table, and knows which flows have
// become stale when the endpoints of UDP services change. It also sets the table's size and timeouts ([Settings]).
//
// A UDP flow lives as long as its packets keep coming. Packets of a known flow never see the NAT rules again, so a
// client that keeps its source port stays with an endpoint that is gone, or with none at all, until somebody deletes
// the flow. TCP needs no such help: its peers notice.
//
// The package owns the talk with ctnetlink (nfnetlink_conntrack.h), the decision which flows are stale ([Change],
// [Conn.Clean]) and the goroutine that cleans off the caller's path ([Cleaner]). It does not know Services, writes no
// rules, and does not log: results go to a callback.
//
// # What a pass costs
//
// Nothing is asked of the kernel as long as nothing was enqueued. A pass asks for the flows of the changed frontends
// only, with the kernel's dump filter (CTA_FILTER, Linux 5.8), and streams: a 64 KiB buffer is decoded message by
// message, and stale flows are deleted in small batches while the dump goes on. So a pass takes the same memory
// whatever the size of the table. Every filter is applied again in user space; what the kernel does not filter is only
// slower.
//
// What the kernels really filter, found by the tests of this package on 5.10, 6.1, 6.12 and 6.18: family, protocol,
// ports, IPv4 addresses and mark on all of them; status from 6.1 on; zone from 6.12 on. IPv6 addresses cannot be
// trusted to it: 5.10.223, 6.1.192 and 6.18.44 compare them the wrong way round and send all flows except those asked
// for, 6.12.117 is right. So an IPv6 address is never sent to the kernel.
//
// # Network namespace
//
// [Open] opens its sockets in the network namespace of the calling thread, and they stay there, whichever thread uses
// them later.
package conntrack
