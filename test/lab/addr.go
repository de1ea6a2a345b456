package lab

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// AddAddr adds an address to the interface that joins the namespace to the
// lab. The address is usable when AddAddr returns. A prefix of more than one
// address also becomes a connected route.
func (n *Namespace) AddAddr(addr netip.Prefix) error { return n.AddAddrTo(uplink, addr) }

// RemoveAddr removes an address that AddAddr added.
func (n *Namespace) RemoveAddr(addr netip.Prefix) error {
	return n.withLink(uplink, fmt.Sprintf("remove address %s", addr), func(link netlink.Link) error {
		return netlink.AddrDel(link, netlinkAddr(addr))
	})
}

// AddAddrTo is AddAddr for any interface.
func (n *Namespace) AddAddrTo(name string, addr netip.Prefix) error {
	err := n.withLink(name, fmt.Sprintf("add address %s", addr), func(link netlink.Link) error {
		return netlink.AddrAdd(link, netlinkAddr(addr))
	})
	if err != nil || addr.Addr().Is4() {
		return err
	}
	return n.await("local route to each IPv6 address of "+name, func() (usable bool, err error) {
		err = n.withLink(name, "list addresses", func(link netlink.Link) (err error) {
			usable, err = hasLocalRoutes(link)
			return err
		})
		if errors.Is(err, netlink.ErrDumpInterrupted) { // the list changed meanwhile
			return false, nil
		}
		return usable, err
	})
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

func netlinkAddr(addr netip.Prefix) *netlink.Addr {
	converted := &netlink.Addr{IPNet: ipNet(addr)}
	if addr.Addr().Is6() {
		converted.Flags = unix.IFA_F_NODAD
	}
	return converted
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
