package lab

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// ReplaceRoute adds or replaces the route to the destination. It leads to the
// address of a neighbour.
func (n *Namespace) ReplaceRoute(destination netip.Prefix, via netip.Addr) error {
	return n.replaceRoute(destination, &netlink.Route{Gw: via.AsSlice()})
}

// ReplaceLinkRoute adds or replaces the route to the destination. It leads to
// hosts on the link that joins the namespace to the lab.
func (n *Namespace) ReplaceLinkRoute(destination netip.Prefix) error {
	return n.replaceRouteOn(uplink, destination, netip.Addr{})
}

// Blackhole silently drops packets to the destination.
func (n *Namespace) Blackhole(destination netip.Prefix) error {
	return n.replaceRoute(destination, &netlink.Route{Type: unix.RTN_BLACKHOLE})
}

// RemoveRoute removes the route to the destination.
func (n *Namespace) RemoveRoute(destination netip.Prefix) error {
	return n.change(fmt.Sprintf("remove route to %s", destination), func() error {
		return netlink.RouteDel(&netlink.Route{Dst: ipNet(destination.Masked())})
	})
}

// Own makes all addresses of a range local to the namespace.
func (n *Namespace) Own(all netip.Prefix) error {
	return n.withLink("lo", fmt.Sprintf("own %s", all), func(lo netlink.Link) error {
		return netlink.RouteAdd(&netlink.Route{
			Dst: ipNet(all.Masked()), Type: unix.RTN_LOCAL, Table: unix.RT_TABLE_LOCAL, Scope: unix.RT_SCOPE_HOST,
			LinkIndex: lo.Attrs().Index,
		})
	})
}

// Wire connects two namespaces by a veth pair, with routes to ranges of the
// other one and its hardware address, so that no packet waits for ARP. The
// interface of each has the name of the other.
func Wire(a, b *Namespace, nameA, nameB string, toB, toA []netip.Prefix) error {
	if err := connect(end{ns: a, name: nameB}, end{ns: b, name: nameA}); err != nil {
		return err
	}
	return errors.Join(a.wireTo(b, nameB, nameA, toB), b.wireTo(a, nameA, nameB, toA))
}

func (n *Namespace) wireTo(other *Namespace, near, far string, ranges []netip.Prefix) error {
	gateway := netip.MustParseAddr("169.254.1.1") // the other end need not have this address
	hardware, err := other.hardwareAddrOf(far)
	if err != nil {
		return err
	}
	errs := []error{n.setNeighbour(near, gateway, hardware, netlink.NUD_PERMANENT)}
	for _, to := range ranges {
		errs = append(errs, n.replaceRouteOn(near, to, gateway))
	}
	return errors.Join(errs...)
}

// dropUnroutable silently drops packets that arrive at the interface and have
// no route. A host that does not forward drops them in IPv4, but in IPv6
// answers with an ICMP error.
func (n *Namespace) dropUnroutable(name string) error {
	const afterMainTable = 40000 // which is at 32766
	rule := netlink.NewRule()
	rule.Family, rule.IifName, rule.Type, rule.Priority = unix.AF_INET6, name, unix.RTN_BLACKHOLE, afterMainTable
	return n.change("add blackhole rule", func() error { return netlink.RuleAdd(rule) })
}

// routeTo adds routes to the destinations via a node.
func (n *Namespace) routeTo(node *Node, destinations []netip.Prefix) error {
	var errs []error
	for _, prefix := range destinations {
		errs = append(errs, n.ReplaceRoute(prefix, node.AddrLike(prefix.Addr())))
	}
	return errors.Join(errs...)
}

// replaceRouteOn adds or replaces a route through an interface. It leads
// directly to the destination (via is the zero Addr), or to a neighbour that
// may be outside connected ranges. Packets from the namespace have its own
// address as source.
func (n *Namespace) replaceRouteOn(name string, destination netip.Prefix, via netip.Addr) error {
	return n.withLink(name, fmt.Sprintf("route to %s", destination), func(link netlink.Link) error {
		route := &netlink.Route{LinkIndex: link.Attrs().Index, Src: n.AddrLike(destination.Addr()).AsSlice()}
		switch {
		case via.IsValid():
			route.Gw = via.AsSlice()
			route.Flags = int(netlink.FLAG_ONLINK)
		case destination.Addr().Is4():
			route.Scope = netlink.SCOPE_LINK
		}
		return n.replaceRoute(destination, route)
	})
}

func (n *Namespace) replaceRoute(destination netip.Prefix, route *netlink.Route) error {
	route.Dst = ipNet(destination.Masked())
	return n.change(fmt.Sprintf("route to %s", destination), func() error { return netlink.RouteReplace(route) })
}

// setNeighbour sets the hardware address of a neighbour. The neighbour table
// may still have the entry of an earlier owner of the address.
func (n *Namespace) setNeighbour(name string, addr netip.Addr, hardware net.HardwareAddr, state int) error {
	return n.withLink(name, fmt.Sprintf("neighbour %s", addr), func(link netlink.Link) error {
		index := link.Attrs().Index
		return netlink.NeighSet(&netlink.Neigh{LinkIndex: index, IP: addr.AsSlice(), HardwareAddr: hardware, State: state})
	})
}

func ipNet(prefix netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: prefix.Addr().AsSlice(), Mask: net.CIDRMask(prefix.Bits(), prefix.Addr().BitLen())}
}

// hostPrefix returns the prefix of this address only.
func hostPrefix(addr netip.Addr) netip.Prefix { return netip.PrefixFrom(addr, addr.BitLen()) }

// everywhere returns the destination of the default route in the family of
// addr.
func everywhere(addr netip.Addr) netip.Prefix {
	if addr.Is4() {
		return netip.PrefixFrom(netip.IPv4Unspecified(), 0)
	}
	return netip.PrefixFrom(netip.IPv6Unspecified(), 0)
}
