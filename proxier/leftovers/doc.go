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
// tables with the names that iptables uses (iptables-nft), or in the legacy
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
// Package xtables describes how rules of legacy tables are removed. On others
// than 64-bit machines that is an error.
//
// # Identification
//
// Leftovers are identified by name: the chains that kube-proxy v1.36 creates,
// by table, the rules in built-in chains that jump to them, the IP sets, and
// the interface. Chains of the kubelet (KUBE-FIREWALL in the table filter,
// KUBE-IPTABLES-HINT, KUBE-KUBELET-CANARY) and of other programs
// (KUBE-ROUTER-…) stay.
//
// A chain also stays if rules of other programs jump to it, such as rules of
// CNI plugins do for hostPorts. KUBE-MARK-MASQ then keeps its rules, because
// the nftables mode masquerades the packets that they mark. Other such chains
// are flushed.
//
// # Traffic
//
// The rules of the nftables mode must exist before Remove is called. They
// handle packets as soon as the leftovers do not. Established connections of
// the iptables mode are translated by connection tracking and stay.
// Connections through IPVS end with their virtual server.
package leftovers
