package lab

import (
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// ReplaceRoute sends packets for the destination via that address of a
// neighbour, whichever way they went before.
func (n *Namespace) ReplaceRoute(destination netip.Prefix, via netip.Addr) error {
	return n.replaceRoute(destination, &netlink.Route{Gw: via.AsSlice()})
}

// ReplaceLinkRoute sends packets for the destination to the hosts themselves,
// which are on the link that joins the namespace to the rest of the lab, whichever
// way they went before.
func (n *Namespace) ReplaceLinkRoute(destination netip.Prefix) error {
	return n.replaceRouteOn(uplink, destination, netip.Addr{})
}

// Blackhole loses packets for the destination without a word.
func (n *Namespace) Blackhole(destination netip.Prefix) error {
	return n.replaceRoute(destination, &netlink.Route{Type: unix.RTN_BLACKHOLE})
}

// Reject answers packets for the destination with an ICMP host unreachable (IPv6:
// no route).
func (n *Namespace) Reject(destination netip.Prefix) error {
	return n.replaceRoute(destination, &netlink.Route{Type: unix.RTN_UNREACHABLE})
}

// swallow loses packets that arrive at the interface and that no route takes. A
// host that does not forward does so by itself in IPv4, and answers them with an
// ICMP error in IPv6.
func (n *Namespace) swallow(name string) error {
	rule := netlink.NewRule()
	rule.Family = unix.AF_INET6
	rule.IifName = name
	rule.Priority = 40000 // after the rule of the main table, which has 32766
	rule.Type = unix.RTN_BLACKHOLE
	if err := n.Do(func() error { return netlink.RuleAdd(rule) }); err != nil {
		return fmt.Errorf("namespace %s: rule for packets without a route: %w", n.Name, err)
	}
	return nil
}

// RemoveRoute removes the route to the destination.
func (n *Namespace) RemoveRoute(destination netip.Prefix) error {
	if err := n.Do(func() error { return netlink.RouteDel(&netlink.Route{Dst: ipNet(destination)}) }); err != nil {
		return fmt.Errorf("namespace %s: remove route to %s: %w", n.Name, destination, err)
	}
	return nil
}

// replaceRouteOn makes a route through an interface, straight to the destination
// (via is the zero Addr) or via a neighbour that need not be in a connected range.
// Packets of the namespace itself get its own address as source.
func (n *Namespace) replaceRouteOn(name string, destination netip.Prefix, via netip.Addr) error {
	link, err := n.link(name)
	if err != nil {
		return err
	}
	route := &netlink.Route{
		LinkIndex: link.Attrs().Index,
		Src:       n.addrLike(destination.Addr()).AsSlice(),
	}
	switch {
	case via.IsValid():
		route.Gw = via.AsSlice()
		route.Flags = int(netlink.FLAG_ONLINK)
	case destination.Addr().Is4():
		route.Scope = netlink.SCOPE_LINK
	}
	return n.replaceRoute(destination, route)
}

func (n *Namespace) replaceRoute(destination netip.Prefix, route *netlink.Route) error {
	route.Dst = ipNet(destination)
	if err := n.Do(func() error { return netlink.RouteReplace(route) }); err != nil {
		return fmt.Errorf("namespace %s: route to %s: %w", n.Name, destination, err)
	}
	return nil
}

// routePodsOf adds routes to the node's pods, via the node.
func (n *Namespace) routePodsOf(node *Node) error {
	for _, prefix := range node.PodRanges {
		if err := n.ReplaceRoute(prefix, node.addrLike(prefix.Addr())); err != nil {
			return err
		}
	}
	return nil
}

// learnNeighbour tells the namespace the hardware address of a neighbour: another
// one that had the address before may still be remembered.
func (n *Namespace) learnNeighbour(name string, addr netip.Addr, hardware net.HardwareAddr) error {
	link, err := n.link(name)
	if err != nil {
		return err
	}
	neighbour := &netlink.Neigh{
		LinkIndex:    link.Attrs().Index,
		IP:           addr.AsSlice(),
		HardwareAddr: hardware,
		State:        netlink.NUD_REACHABLE,
	}
	if err := n.Do(func() error { return netlink.NeighSet(neighbour) }); err != nil {
		return fmt.Errorf("namespace %s: neighbour %s on %s: %w", n.Name, addr, name, err)
	}
	return nil
}

func ipNet(prefix netip.Prefix) *net.IPNet {
	return &net.IPNet{
		IP:   prefix.Masked().Addr().AsSlice(),
		Mask: net.CIDRMask(prefix.Bits(), prefix.Addr().BitLen()),
	}
}

// hostPrefix is the range that holds this address only.
func hostPrefix(addr netip.Addr) netip.Prefix { return netip.PrefixFrom(addr, addr.BitLen()) }

// everywhere is the destination of the default route of the address's family.
func everywhere(addr netip.Addr) netip.Prefix {
	if addr.Is4() {
		return netip.PrefixFrom(netip.IPv4Unspecified(), 0)
	}
	return netip.PrefixFrom(netip.IPv6Unspecified(), 0)
}
