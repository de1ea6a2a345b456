// Package node is what the kernel of this node shows about a connection: the
// table of nftproxy ([Kernel]), and the base chains of all other programs
// ([Tables]).
//
// A [Journey] takes a hypothetical packet of a [Connection] through the hooks,
// in the order of the kernel: raw and mangle, nat chains of other programs, the
// translation by nftproxy, the routing decision, input or forward, postrouting.
// The rules are evaluated by package walk. An [Effect] is a rule that drops the
// packet, translates it, or excludes it from connection tracking. If that
// depends on a fact that is not known, the effect is not certain.
//
// The translation by nftproxy is not evaluated here: it is part of the
// Connection. The tables are those of the families ip, ip6 and inet and of
// iptables-legacy. Tables of the families netdev and bridge, and programs of
// BPF, are not read.
package node
