package doctor

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/nft"
)

// checkForwarding checks that the kernel forwards packets to endpoints.
func checkForwarding(_ context.Context, n *node) Finding {
	if v4, _ := n.number("net/ipv4/ip_forward"); v4 == 0 {
		return fail("net.ipv4.ip_forward is 0: packets from pods and from outside do not reach endpoints",
			"sysctl -w net.ipv4.ip_forward=1, and set it in /etc/sysctl.d")
	}
	off := n.interfacesWhere("forwarding", func(value int) bool { return value == 0 })
	if len(off) > 0 {
		return warn("packets that arrive on some interfaces are not forwarded: "+list(off, 5),
			"sysctl -w net.ipv4.conf."+dots(off[0])+".forwarding=1")
	}
	v6, hasIPv6 := n.number("net/ipv6/conf/all/forwarding")
	if hasIPv6 && v6 == 0 && n.servesIPv6() {
		return warn("net.ipv6.conf.all.forwarding is 0: IPv6 packets do not reach endpoints in pods",
			"sysctl -w net.ipv6.conf.all.forwarding=1, unless the cluster uses IPv4 only")
	}
	return ok("the kernel forwards packets")
}

// servesIPv6 reports whether the IPv6 table has Services, and the node a route
// to everywhere.
func (n *node) servesIPv6() bool {
	rows, err := endpointRows(nft.IPv6)
	return err == nil && len(rows) > 0
}

// dots returns the name of an interface in the syntax of sysctl, which swaps
// dots and slashes.
func dots(iface string) string { return strings.ReplaceAll(iface, ".", "/") }

// strict is the value of rp_filter that drops packets from a source to which
// the best route leads by another interface.
const strict = 1

// checkReversePath checks whether rp_filter can drop packets of Services.
func checkReversePath(_ context.Context, n *node) Finding {
	all, _ := n.interfaceSetting("all", "rp_filter")
	// The kernel uses the larger value.
	names := n.interfacesWhere("rp_filter", func(value int) bool { return max(all, value) == strict })
	if len(names) == 0 {
		return ok("no interface has a strict rp_filter")
	}
	return strictFinding(names)
}

// strictFinding is the finding for interfaces with a strict rp_filter. With one
// uplink and no policy routing, answers leave by the interface on which
// packets arrive.
func strictFinding(names []string) Finding {
	uplinks, err := uplinks()
	if err != nil {
		return unknown(err)
	}
	rules, err := netlink.RuleList(unix.AF_INET)
	if err != nil {
		return unknown(err)
	}
	reason := ""
	const defaultRules = 3 // local, main, default
	for _, name := range uplinks {
		switch filtered := slices.Contains(names, name); {
		case filtered && len(uplinks) > 1:
			reason = fmt.Sprintf("%s has a strict rp_filter, and default routes leave by %s", name, list(uplinks, 3))
		case filtered && len(rules) > defaultRules:
			reason = fmt.Sprintf("%s has a strict rp_filter, and this node has policy routing (ip rule)", name)
		}
	}
	if reason != "" {
		return warn(reason+": packets whose answer would leave by another interface are dropped",
			"sysctl -w net.ipv4.conf.all.rp_filter=2 (loose), and set it in /etc/sysctl.d")
	}
	return info("strict rp_filter on "+list(names, 5)+": harmless with one uplink", "")
}

// uplinks returns the interfaces of the IPv4 default routes.
func uplinks() (names []string, err error) {
	routes, err := netlink.RouteListFiltered(unix.AF_INET, &netlink.Route{Dst: nil}, netlink.RT_FILTER_DST)
	if err != nil {
		return nil, err
	}
	for _, r := range routes {
		indexes := []int{r.LinkIndex}
		for _, hop := range r.MultiPath {
			indexes = append(indexes, hop.LinkIndex)
		}
		for _, index := range indexes {
			link, err := netlink.LinkByIndex(index) // an error for 0, the index of a route with several hops
			if err == nil && link.Attrs().Flags&unix.IFF_LOOPBACK == 0 && !slices.Contains(names, link.Attrs().Name) {
				names = append(names, link.Attrs().Name)
			}
		}
	}
	return names, nil
}

// checkRouteLocalnet checks that other hosts cannot reach services on
// 127.0.0.1 (CVE-2020-8558).
func checkRouteLocalnet(_ context.Context, n *node) Finding {
	open := n.interfacesWhere("route_localnet", func(value int) bool { return value != 0 })
	if all, _ := n.interfaceSetting("all", "route_localnet"); all != 0 {
		open = append([]string{"all"}, open...)
	}
	if len(open) == 0 {
		return ok("route_localnet is 0 on all interfaces")
	}
	return warn("route_localnet is 1 on "+list(open, 5)+
		": other hosts and pods can reach programs of this node that listen on 127.0.0.1 only (CVE-2020-8558)",
		"sysctl -w net.ipv4.conf."+dots(open[0])+".route_localnet=0; kube-proxy's iptables mode sets it, "+
			"nftproxy does not need it")
}
