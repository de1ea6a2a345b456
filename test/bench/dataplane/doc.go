// Dataplane measures the cost of the rules of service proxies, for new
// connections and for established flows. It compares no rules, one static DNAT
// rule, kube-proxy in nftables mode and nftproxy, the proxies with few and with
// many Services.
//
//	pod ── veth ── node ── veth ── server      each a network namespace
//	 │              │  rules         │
//	 │              └── client ──────┤ path "node": output, postrouting
//	 └──────────────── client ───────┘ path "pod": prerouting, forward, postrouting
//
// The proxies get the same configuration file, write their tables from a real
// API server, and are stopped before the first measurement, so that only their
// tables have an effect. Each variant has several instances, in separate
// namespaces, because the location of rules and rows in memory changes the
// figures by a few percent. Every round measures all instances in a new random
// order, each for some milliseconds. A comparison with the static rule uses the
// static rule's figures of the same round.
//
// A client is a thread that only makes system calls. It does the server's work
// too: the kernel delivers a packet through veth within the system call that
// sends the packet, so no thread waits for another.
//
// New connections: the latency of TCP is the time of connect(). The latency of
// UDP is the time of a request from a new socket, its processing by the server
// and the answer. Connections per second count whole cycles, from socket() to
// close() and the server's accept(), with one client on each processor.
//
// Established flows: a client opens one flow, TCP or UDP, and exchanges a first
// request and answer, so that conntrack has seen packets of both directions.
// Then it measures requests of one byte over this flow, each with its
// processing by the server and the answer: their latency, and their rate in one
// thread that sends the next request after each answer. Each request costs two
// packets through the rules, the request and the answer (TCP sends its ACKs
// with these). Every measurement opens a new flow. Without rules, the kernel
// does not track flows, for new connections and established flows alike.
//
// All clients have addresses of the cluster, so nothing is masqueraded. Clients
// outside of the cluster, NodePorts and other addresses are not measured. Flows
// are removed from conntrack after every measurement. A "known" client of a
// Service with session affinity has an endpoint already; 64 of them connect in
// turn. A "new" client connects for the first time.
package main
