package lab

import (
	"errors"
	"fmt"
	"hash/fnv"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// end is one end of a cable between two namespaces.
type end struct {
	ns     *Namespace
	name   string // of the interface
	bridge string // of ns, which the interface joins; may be empty
}

// connect creates a cable (a veth pair), sets both ends up and waits until
// both carry packets. The interfaces never appear in another namespace.
func connect(a, b end) error {
	attrs := netlink.NewLinkAttrs()
	attrs.Name = a.name
	veth := netlink.NewVeth(attrs)
	veth.PeerName = b.name
	veth.PeerNamespace = netlink.NsFd(b.ns.Fd())
	what := fmt.Sprintf("add veth %s with peer %s in %s", a.name, b.name, b.ns.Name)
	if err := a.ns.change(what, func() error { return netlink.LinkAdd(veth) }); err != nil {
		return err
	}
	for _, e := range []end{a, b} {
		if e.bridge != "" {
			if err := e.ns.join(e.name, e.bridge); err != nil {
				return err
			}
		}
	}
	if err := errors.Join(a.ns.setUp(a.name), b.ns.setUp(b.name)); err != nil {
		return err
	}
	return errors.Join(a.ns.awaitUp(a.name), b.ns.awaitUp(b.name))
}

// addBridge creates a bridge and sets it up. It carries packets once it has a
// port.
func (n *Namespace) addBridge(name string) error {
	// No router queries these networks, and a snooping bridge may hold back
	// neighbour discovery.
	snooping := false
	attrs := netlink.NewLinkAttrs()
	attrs.Name = name
	// By default a bridge has the hardware address of a port and changes it
	// with its ports. Neighbours would go on sending to the old address.
	attrs.HardwareAddr = hardwareAddr(n.Name + "/" + name)
	bridge := &netlink.Bridge{LinkAttrs: attrs, MulticastSnooping: &snooping}
	add := n.change("add bridge "+name, func() error { return netlink.LinkAdd(bridge) })
	return errors.Join(add, n.setUp(name))
}

func (n *Namespace) join(port, bridge string) error {
	return n.withLink(port, "join bridge "+bridge, func(link netlink.Link) error {
		master, err := netlink.LinkByName(bridge)
		if err != nil {
			return err
		}
		return netlink.LinkSetMaster(link, master)
	})
}

func (n *Namespace) setUp(name string) error { return n.withLink(name, "set up", netlink.LinkSetUp) }

func (n *Namespace) removeLink(name string) error { return n.withLink(name, "remove", netlink.LinkDel) }

// awaitUp waits until an interface carries packets. The kernel detects the
// carrier asynchronously, and loses packets until then.
func (n *Namespace) awaitUp(name string) error {
	return n.await(name, "carrier", func(link netlink.Link) (bool, error) {
		return link.Attrs().OperState == netlink.OperUp, nil
	})
}

// withLink calls f in the namespace with the interface of that name. The
// error names the action.
func (n *Namespace) withLink(name, action string, f func(netlink.Link) error) error {
	return n.change(fmt.Sprintf("interface %s: %s", name, action), func() error {
		link, err := netlink.LinkByName(name)
		if err != nil {
			return err
		}
		return f(link)
	})
}

// change calls f in the namespace. The error names the action.
func (n *Namespace) change(action string, f func() error) error {
	if err := n.Do(f); err != nil {
		return fmt.Errorf("namespace %s: %s: %w", n.Name, action, err)
	}
	return nil
}

// await waits until done returns true for an interface. It is for what the
// kernel does asynchronously.
func (n *Namespace) await(name, what string, done func(netlink.Link) (bool, error)) error {
	const patience = 10 * time.Second
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(200 * time.Microsecond) {
		met := false
		err := n.withLink(name, what, func(link netlink.Link) (err error) {
			met, err = done(link)
			return err
		})
		if met || err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) { // the list changed meanwhile
			return err
		}
	}
	return fmt.Errorf("namespace %s: interface %s: no %s after %v", n.Name, name, what, patience)
}

// hardwareAddr derives a locally administered unicast address from a name.
func hardwareAddr(name string) net.HardwareAddr {
	hash := fnv.New64a()
	hash.Write([]byte(name))
	addr := net.HardwareAddr(hash.Sum(nil)[:6])
	addr[0] = addr[0]&0xfc | 0x02
	return addr
}

// AddAddr adds addresses to the interface that joins the namespace to the lab.
// They are usable when AddAddr returns. A prefix of more than one address also
// becomes a connected route.
func (n *Namespace) AddAddr(addrs ...netip.Prefix) error {
	return each(addrs, func(addr netip.Prefix) error { return n.AddAddrTo(uplink, addr) })
}

// AddAddrTo is AddAddr for any interface.
func (n *Namespace) AddAddrTo(name string, addr netip.Prefix) error {
	err := n.withLink(name, fmt.Sprintf("add address %s", addr), func(link netlink.Link) error {
		added := &netlink.Addr{IPNet: ipNet(addr)}
		if addr.Addr().Is6() {
			added.Flags = unix.IFA_F_NODAD
		}
		return netlink.AddrAdd(link, added)
	})
	if err != nil || addr.Addr().Is4() {
		return err
	}
	return n.await(name, "local route to each IPv6 address", hasLocalRoutes)
}

// hasLocalRoutes reports whether the IPv6 addresses of an interface, with the
// link-local one that the kernel adds, are usable. The kernel joins the
// multicast group of an address and then adds the local route, both
// asynchronously.
func hasLocalRoutes(link netlink.Link) (bool, error) {
	addrs, err := netlink.AddrList(link, netlink.FAMILY_V6)
	if err != nil {
		return false, err
	}
	inLocalTable := &netlink.Route{LinkIndex: link.Attrs().Index, Table: unix.RT_TABLE_LOCAL}
	const filter = netlink.RT_FILTER_OIF | netlink.RT_FILTER_TABLE
	routes, err := netlink.RouteListFiltered(netlink.FAMILY_V6, inLocalTable, filter)
	if err != nil {
		return false, err
	}
	linkLocal := link.Attrs().Flags&net.FlagLoopback != 0 // has none
	for _, addr := range addrs {
		local := func(route netlink.Route) bool { return route.Type == unix.RTN_LOCAL && route.Dst.IP.Equal(addr.IP) }
		if !slices.ContainsFunc(routes, local) {
			return false, nil
		}
		linkLocal = linkLocal || addr.IP.IsLinkLocalUnicast()
	}
	return linkLocal, nil
}

// AddrIn returns the address n above the first one of the range.
func AddrIn(prefix netip.Prefix, n int) netip.Addr {
	raw := prefix.Masked().Addr().AsSlice()
	for i := len(raw) - 1; n > 0; i-- {
		n += int(raw[i])
		raw[i] = byte(n)
		n >>= 8
	}
	addr, _ := netip.AddrFromSlice(raw)
	return addr
}

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

// Blackhole silently drops packets to the destinations.
func (n *Namespace) Blackhole(destinations ...netip.Prefix) error {
	return each(destinations, func(to netip.Prefix) error {
		return n.replaceRoute(to, &netlink.Route{Type: unix.RTN_BLACKHOLE})
	})
}

// RemoveRoute removes the routes to the destinations.
func (n *Namespace) RemoveRoute(destinations ...netip.Prefix) error {
	return each(destinations, func(to netip.Prefix) error {
		return n.change(fmt.Sprintf("remove route to %s", to), func() error {
			return netlink.RouteDel(&netlink.Route{Dst: ipNet(to.Masked())})
		})
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
	err := n.setNeighbour(near, gateway, other, far, netlink.NUD_PERMANENT)
	return errors.Join(err, each(ranges, func(to netip.Prefix) error { return n.replaceRouteOn(near, to, gateway) }))
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
	return each(destinations, func(to netip.Prefix) error { return n.ReplaceRoute(to, node.AddrLike(to.Addr())) })
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

// setNeighbour sets the hardware address of a neighbour, the address of an
// interface of the other namespace. The neighbour table may still have the
// entry of an earlier owner of the address.
func (n *Namespace) setNeighbour(name string, addr netip.Addr, other *Namespace, far string, state int) error {
	entry := &netlink.Neigh{IP: addr.AsSlice(), State: state}
	err := other.withLink(far, "hardware address", func(link netlink.Link) error {
		entry.HardwareAddr = link.Attrs().HardwareAddr
		return nil
	})
	return errors.Join(err, n.withLink(name, fmt.Sprintf("neighbour %s", addr), func(link netlink.Link) error {
		entry.LinkIndex = link.Attrs().Index
		return netlink.NeighSet(entry)
	}))
}

func ipNet(prefix netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: prefix.Addr().AsSlice(), Mask: net.CIDRMask(prefix.Bits(), prefix.Addr().BitLen())}
}

// HostPrefixes returns prefixes of one address each.
func HostPrefixes(addrs ...netip.Addr) (all []netip.Prefix) {
	for _, addr := range addrs {
		all = append(all, netip.PrefixFrom(addr, addr.BitLen()))
	}
	return all
}

// each calls f with all values, and returns all errors.
func each[T any](values []T, f func(T) error) (err error) {
	for _, v := range values {
		err = errors.Join(err, f(v))
	}
	return err
}
