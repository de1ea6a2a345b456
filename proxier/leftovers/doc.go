// Package leftovers removes the leftovers of other kube-proxy modes from a
// node's network namespace: the chains and rules of the iptables and IPVS
// modes, and the interface, virtual servers and IP sets of the IPVS mode.
//
// It owns the names that identify leftovers and the ways to remove them. It
// does not own the tables of the nftables mode, and it does not depend on
// Services or on the proxier.
//
// # Places of rules
//
// iptables stores rules in one of two places in the kernel: in nf_tables, in
// tables with the names of those of iptables (iptables-nft), or in the legacy
// tables of x_tables (iptables-legacy). Both places can have rules. The
// variant of the installed iptables program does not show which variant
// kube-proxy used, so Remove checks both places.
//
//	           found by                    removed by
//	nf_tables  netlink                     netlink, one transaction per table
//	legacy     /proc/net/ip_tables_names,  IPT_SO_SET_REPLACE, one per table
//	           IPT_SO_GET_ENTRIES
//	IP sets    netlink                     netlink, after their rules
//	IPVS       the interface kube-ipvs0    netlink
//
// Remove runs no iptables program. It uses the same kernel interfaces as
// these programs. The checks load no kernel module, create no table and take
// no lock.
//
// # Legacy tables
//
// The kernel cannot delete a single rule of a legacy table. A program reads a
// whole table and replaces it atomically. Remove writes the bytes that it
// read, without the entries of the leftovers, and adapts the offsets. It does
// not interpret the matches and targets of other programs: the kernel accepts
// their data as it returned it, as it does for iptables. A test compares the
// result with that of iptables.
//
// As with every change by iptables, matches with unnamed state (limit, quota,
// statistic) start again, and matches with named state (recent, hashlimit)
// keep it. Rule counters are kept: the kernel returns the final counters of
// the old table, and Remove adds them to those of the new one.
//
// iptables programs hold the lock /run/xtables.lock while they read and
// replace a table. Remove takes it as well, and waits up to 5 s for it. In a
// container this requires a mount of the host's file. Without the lock, the
// kernel still refuses the replacement if the number of entries has changed
// since the read; Remove then reads the table again. One race remains:
// another program changes a rule, but not the number of rules, within these
// milliseconds.
//
// The format of the entries is that of 64-bit programs on 64-bit kernels. On
// others Remove returns an error.
//
// # Identification
//
// Leftovers are identified by name: the chains that kube-proxy v1.36 creates,
// by table, the rules in built-in chains that jump to them, the IP sets, and
// the interface. Chains of the kubelet (KUBE-FIREWALL in the table filter,
// KUBE-IPTABLES-HINT, KUBE-KUBELET-CANARY) and of other programs
// (KUBE-ROUTER-…) stay.
//
// A chain also stays if rules of other programs jump to it, as those of CNI
// plugins do for hostPorts. KUBE-MARK-MASQ then keeps its rules, because the
// nftables mode masquerades the packets that they mark. Other such chains are
// flushed.
//
// # Traffic
//
// The rules of the nftables mode must exist before Remove is called. They
// handle packets as soon as the leftovers do not. Established connections of
// the iptables mode are translated by connection tracking and stay.
// Connections through IPVS end with their virtual server.
package leftovers
