// Package leftovers owns what kube-proxy's other modes leave in a node's network namespace, and its removal: the chains and rules of the
// iptables and the IPVS mode, and the interface, virtual servers and IP sets of the latter. It knows nothing of Services, and leaves the
// tables of the nftables mode alone.
//
// # Where rules are
//
// iptables keeps rules in one of two places of the kernel, and both can hold some: in nf_tables, as tables that are named as those
// of iptables are (iptables-nft), or in the legacy tables of x_tables (iptables-legacy). Which of them an `iptables` program uses
// says nothing about where kube-proxy's rules are. So both are looked at.
//
//	             what is there               how it is removed
//	nf_tables    netlink                     netlink, one transaction a table
//	legacy       /proc/net/ip_tables_names,  IPT_SO_SET_REPLACE, one a table
//	             IPT_SO_GET_ENTRIES
//	IP sets      netlink                     netlink, once no rule uses them
//	IPVS         the interface kube-ipvs0    netlink
//
// No program of iptables runs, whatever its name is and whether it is in PATH: all that such a program does to the kernel is done here
// by the same means. Looking loads no kernel module, creates no table and takes no lock.
//
// # Legacy tables
//
// The kernel has no way to delete a rule of a legacy table. It hands out a table as a whole, and takes another one in its place, at once for
// all packets. The table that is written is the one that was read, byte by byte, without the entries that go; only the offsets in it change. So
// nothing needs to be known of the matches and targets of others: the kernel hides what is its own of their data, and takes them as
// iptables itself hands them back. A test compares with what iptables leaves. As with every change by iptables,
// matches that count for themselves without a name (limit, quota, statistic) begin anew, and those with one (recent, hashlimit) go on.
// Counters of rules go on: the kernel returns what the old table counted to its end, and that is added to the new one.
//
// Programs of iptables hold the lock /run/xtables.lock while they read and replace a table, and so does Remove, for which
// it waits up to 5 s. In a container the host's file must be mounted for that. Without the lock the kernel still refuses to replace a table
// that has another number of rules than what was read; then it is read anew. What remains is a program that changes a rule, and not their number, within the
// milliseconds between.
//
// The entries are those of 64-bit programs on 64-bit kernels; others are refused.
//
// # What is removed
//
// What is kube-proxy's is known by its name: the chains that kube-proxy v1.36 makes, table by table, the rules of the built-in chains that
// jump to them, the sets and the interface. Chains of the kubelet (KUBE-FIREWALL in the table filter, KUBE-IPTABLES-HINT,
// KUBE-KUBELET-CANARY) and of other programs (KUBE-ROUTER-…) stay. So do chains that rules of others jump to, as CNI plugins
// do for hostPorts: KUBE-MARK-MASQ stays as it is, since what it marks is masqueraded by the nftables mode as well; others stay empty.
//
// # Traffic
//
// The rules of the nftables mode must be in place before. What the old rules did for a packet is then done by the new ones before and after
// each transaction, and connections under way are translated by connection tracking. Connections through IPVS have no such
// memory: they end with the virtual server that they came by.
package leftovers
