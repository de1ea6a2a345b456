// Dataplane measures what the rules of service proxies cost new connections, side by side: no rules, one static rule, kube-proxy in nftables
// mode and nftproxy, these with few and with many Services.
//
//	pod ── veth ── node ── veth ── server      each a network namespace
//	 │              │  rules         │
//	 │              └── client ──────┤ path "node": output, postrouting
//	 └──────────────── client ───────┘ path "pod": prerouting, forward, postrouting
//
// The proxies write their tables from a real API server, with the same configuration file, and are stopped before anything is measured: only
// what they wrote counts. Every variant is there several times, in namespaces of its own, because where rules and rows happen to lie in
// memory is worth a few percent. In every round all of them are measured in a new order, each for some milliseconds. What is compared with
// the static rule is compared with that of the same round.
//
// A client is a thread that makes system calls and nothing else. It is also the server: the kernel delivers a packet through veth within
// the system call that sends it, so that no thread waits for another, and nothing is in the figures but these calls. TCP is the time of connect().
// UDP is a request from a fresh socket until the answer was received, with receiving and answering it. Connections a second are whole cycles,
// socket() to close() and the server's accept(), by a client on each processor.
//
// All clients have addresses of the cluster, so that nothing is masqueraded: clients outside of it, NodePorts and other addresses are not measured. Flows are removed from connection tracking after every
// measurement. A "known" client of a Service with session affinity has an endpoint already; there are 64 of them, in turn. A "new" one
// connects for the first time.
package main
