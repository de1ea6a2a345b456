// Package conntrack deletes stale UDP flows, stale attempts to connect by TCP
// and SCTP, and connections to endpoints that no longer exist, from the
// kernel's connection tracking table. It also sets the size and the timeouts of
// the table.
//
// A flow is an entry of the table. A UDP flow lives as long as its packets
// keep coming, and the NAT rules do not see the packets of a known flow. So a
// client that keeps its source port stays with an endpoint that was removed,
// or without an endpoint, until its flow is deleted. So does a client that
// repeats the first packet of a TCP or SCTP connection until it gets an answer.
// An answered connection needs this only if the endpoint disappears and does
// not end it.
//
// A [Cleaner] deletes such flows. Its caller commits new rules, and then
// reports the changed frontends and their endpoints ([FrontendChange]). The
// Cleaner checks them in a pass: it lists the flows to these frontends, of TCP
// and SCTP only attempts to connect that have no answer, and deletes those
// whose replies do not come from a current endpoint.
//
// Its caller can also report endpoints that no longer exist ([Removal]). The
// Cleaner deletes the connections to these endpoints.
//
// [Conn.Select] reads connections of all protocols, for people who ask where
// they go.
//
// # Walks
//
// A walk is a dump of the whole table for one [Selection], with a
// [Connection] for each entry: client, frontend, endpoint, state and ID. It
// is the only source of what happens to connections now: the package listens to
// no events of connection tracking, because an event costs more than the
// entry's part of many walks. The proxy walks through unanswered attempts, to
// find endpoints that do not answer (Translated and Unanswered). A [Counter]
// walks through all translated ones, and finds what is new, for a program that
// counts connections by Service. An entry is an attempt of a client only from
// the moment at which its first packet left the last hook: packets that are
// dropped before are in no walk.
//
// # Scope
//
// The package owns the communication with ctnetlink (nfnetlink_conntrack.h),
// the frontends, the decision which flows are stale, the goroutine that
// deletes them, and the sysctls of connection tracking ([Settings]).
//
// It does not import Kubernetes libraries, does not write rules, and does not
// log: it reports results to a callback.
//
// # Cost of a pass
//
// Without changes, no requests are sent to the kernel. A pass requests the
// flows to the changed frontends only, with the kernel's dump filter
// (CTA_FILTER, Linux 5.8). It decodes a 64 KiB buffer message by message,
// and deletes stale flows in small batches while the dump continues, so its
// memory does not depend on the size of the table. It applies each filter
// again in user space: a filter that the kernel ignores only costs time.
//
// The tests of this package run on Linux 5.10, 6.1, 6.12 and 6.18, all of
// which filter by family, protocol, port and IPv4 address. Filters by IPv6
// address are unreliable: 5.10.223, 6.1.192 and 6.18.44 invert the comparison
// and send all flows except the requested ones, while 6.12.117 is correct. So
// an IPv6 address is never sent to the kernel.
//
// # Network namespace
//
// [Open] opens its sockets in the network namespace of the calling thread.
// They stay there, whichever thread uses them later.
package conntrack
