package lab

import (
	"fmt"
	"net/netip"
)

// PodRanges returns the pod ranges of the cluster, IPv4 first.
func PodRanges() []netip.Prefix { return prefixes("10.244.0.0/16", "fd00:244::/32") }

// ServiceRanges returns the ranges of ClusterIPs, IPv4 first.
func ServiceRanges() []netip.Prefix { return prefixes("10.96.0.0/16", "fd00:96::/112") }

// ExternalRanges returns the ranges of external and LoadBalancer IPs, IPv4
// first.
func ExternalRanges() []netip.Prefix { return prefixes("192.0.2.0/24", "2001:db8::/64") }

func prefixes(ipv4, ipv6 string) []netip.Prefix {
	return []netip.Prefix{netip.MustParsePrefix(ipv4), netip.MustParsePrefix(ipv6)}
}

// Prefix lengths of the network of client and nodes.
const (
	underlayBits4 = 24
	underlayBits6 = 64
)

// podGateway6 returns the IPv6 gateway of all pods. Unlike ARP, neighbour
// discovery answers only for addresses of the receiving interface. A
// link-local address does not become a node address.
func podGateway6() netip.Prefix { return netip.MustParsePrefix("fe80::1/64") }

// nodeAddrs returns the addresses and the pod ranges of a node.
func nodeAddrs(n int) (ipv4, ipv6 netip.Addr, pods []netip.Prefix) {
	return netip.MustParseAddr(fmt.Sprintf("172.30.0.1%d", n)), netip.MustParseAddr(fmt.Sprintf("fd00:30::1%d", n)),
		prefixes(fmt.Sprintf("10.244.%d.0/24", n), fmt.Sprintf("fd00:244:%d::/64", n))
}

func clientAddrs() (ipv4, ipv6 netip.Addr) {
	return netip.MustParseAddr("172.30.0.100"), netip.MustParseAddr("fd00:30::100")
}
