package lab

import (
	"fmt"
	"net/netip"
)

// PodRanges are the ranges of all pods of the cluster, one a family.
func PodRanges() []netip.Prefix {
	return []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16"), netip.MustParsePrefix("fd00:244::/32")}
}

// ServiceRanges are the ranges for ClusterIPs, one a family.
func ServiceRanges() []netip.Prefix {
	return []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16"), netip.MustParsePrefix("fd00:96::/112")}
}

// ExternalRanges are the ranges for external and load balancer IPs, one a family.
func ExternalRanges() []netip.Prefix {
	return []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("2001:db8::/64")}
}

// underlay is what the addresses of the client and of the nodes have in common.
const (
	underlayBits4 = 24
	underlayBits6 = 64
)

// podGateway6 is the IPv6 gateway of every pod: neighbour discovery, unlike
// ARP, answers only for addresses of the receiving interface, and a link-local
// one does not add to the addresses by which a node is known.
func podGateway6() netip.Prefix { return netip.MustParsePrefix("fe80::1/64") }

// nodePlan is what distinguishes one node from the other.
type nodePlan struct {
	name         string
	ipv4, ipv6   netip.Addr
	pods4, pods6 netip.Prefix
}

func nodePlans() [2]nodePlan {
	plan := func(n int) nodePlan {
		return nodePlan{
			name:  fmt.Sprintf("node%d", n),
			ipv4:  netip.MustParseAddr(fmt.Sprintf("172.30.0.1%d", n)),
			ipv6:  netip.MustParseAddr(fmt.Sprintf("fd00:30::1%d", n)),
			pods4: netip.MustParsePrefix(fmt.Sprintf("10.244.%d.0/24", n)),
			pods6: netip.MustParsePrefix(fmt.Sprintf("fd00:244:%d::/64", n)),
		}
	}
	return [2]nodePlan{plan(1), plan(2)}
}

func clientAddrs() (ipv4, ipv6 netip.Addr) {
	return netip.MustParseAddr("172.30.0.100"), netip.MustParseAddr("fd00:30::100")
}

// nthAddr returns the address that lies n above the first one of the range.
func nthAddr(prefix netip.Prefix, n int) netip.Addr {
	addr := prefix.Masked().Addr()
	for range n {
		addr = addr.Next()
	}
	return addr
}
