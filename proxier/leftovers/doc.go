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
//	legacy       /proc/net/ip_tables_names,  iptables-legacy-restore --noflush, one a table
//	             IPT_SO_GET_ENTRIES
//	IP sets      netlink                     netlink, once no rule uses them
//	IPVS         the interface kube-ipvs0    netlink
//
// Looking loads no kernel module and creates no table. The programs of iptables-legacy run only where kube-proxy's chains are in a legacy table.
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
