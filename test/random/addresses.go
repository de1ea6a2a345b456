package random

import (
	"errors"
	"net/netip"

	"github.com/nftproxy/nftproxy/test/lab"
)

// Ports of the servers of endpoints.
const (
	FirstTarget  = 8080
	SecondTarget = 8081
)

// SecondServiceRanges returns the ranges of another ServiceCIDR, which a
// quarter of the Services use.
func SecondServiceRanges() []netip.Prefix { return prefixes("10.97.3.0/24", "fd00:97::/112") }

func prefixes(values ...string) (all []netip.Prefix) {
	for _, v := range values {
		all = append(all, netip.MustParsePrefix(v))
	}
	return all
}

func addrs(values ...string) (all []netip.Addr) {
	for _, v := range values {
		all = append(all, netip.MustParseAddr(v))
	}
	return all
}

// NodeAddrs returns the primary addresses of node1.
func NodeAddrs() []netip.Addr {
	return addrs("172.30.0.11", "fd00:30::11")
}

// SecondAddrs returns more addresses of node1. Services have them as external
// IPs.
func SecondAddrs() []netip.Addr {
	return addrs("172.30.0.21", "fd00:30::21")
}

// unroutedRange has the many external IPs of Config.ManyIPs. No route leads
// there.
var unroutedRange = netip.MustParsePrefix("100.64.0.0/10")

// IsRouted reports whether packets to a frontend of an app reach the nodes.
func IsRouted(addr netip.Addr) bool { return !unroutedRange.Contains(addr) }

// AddPods adds the pods a1, a2, b1 and b2 to a lab, and servers to them and to
// the nodes. It returns the pods, and the addresses of all these endpoints, by
// name.
func AddPods(l *lab.Lab) (pods map[string]*lab.Pod, all map[string][2]netip.Addr, err error) {
	if pods, err = l.AddPods([]uint16{FirstTarget, SecondTarget}, "a1", "a2", "b1", "b2"); err != nil {
		return nil, nil, err
	}
	all = map[string][2]netip.Addr{}
	for name, pod := range pods {
		all[name] = [2]netip.Addr(pod.Addrs())
	}
	for _, node := range l.Nodes() {
		all[node.Name] = [2]netip.Addr(node.Addrs())
		err = errors.Join(err, node.Serve(FirstTarget, SecondTarget))
	}
	return pods, all, err
}

// Addrs returns addresses of hypothetical endpoints: of node1, and of pods with
// names.
func Addrs(names ...string) map[string][2]netip.Addr {
	all := map[string][2]netip.Addr{"node1": [2]netip.Addr(NodeAddrs())}
	for i, name := range names {
		for f, prefix := range lab.PodRanges() {
			pair := all[name]
			pair[f] = lab.AddrIn(prefix, 256+i)
			all[name] = pair
		}
	}
	return all
}

// Outside returns the address of a client outside the cluster: one that source
// ranges can contain, or their neighbour.
func (g *Generator) Outside(f int) netip.Addr {
	return Pick(g, [][]netip.Addr{
		addrs("172.30.0.100", "172.30.0.63", "172.30.0.64", "172.31.127.255", "172.31.128.0", "203.0.113.9"),
		addrs("fd00:30::100", "fd00:30:f::", "fd00:31::1", "fd00:31:0:0:8000::", "fd00:32::", "2001:db9::9"),
	}[f])
}
