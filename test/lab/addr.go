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

// AddAddr adds an address to the interface that joins the namespace to the rest
// of the lab. It can be used at once. The prefix also becomes a connected route
// unless it is a single address.
func (n *Namespace) AddAddr(addr netip.Prefix) error { return n.AddAddrTo(uplink, addr) }

// RemoveAddr removes what AddAddr added.
func (n *Namespace) RemoveAddr(addr netip.Prefix) error { return n.RemoveAddrFrom(uplink, addr) }

// AddAddrTo is AddAddr for an interface by name.
func (n *Namespace) AddAddrTo(name string, addr netip.Prefix) error {
	link, err := n.link(name)
	if err != nil {
		return err
	}
	if err := n.Do(func() error { return netlink.AddrAdd(link, netlinkAddr(addr)) }); err != nil {
		return fmt.Errorf("namespace %s: add address %s to %s: %w", n.Name, addr, name, err)
	}
	if addr.Addr().Is6() {
		return n.awaitLocal(link)
	}
	return nil
}

// awaitLocal waits until the IPv6 addresses of an interface, among them the
// link-local one that the kernel adds, are in use: the kernel joins the group in
// which neighbours ask for an address, and then makes the local route, later.
func (n *Namespace) awaitLocal(link netlink.Link) error {
	inLocalTable := &netlink.Route{LinkIndex: link.Attrs().Index, Table: unix.RT_TABLE_LOCAL}
	return n.await("IPv6 addresses of "+link.Attrs().Name, func() (bool, error) {
		addrs, err := within(n, func() ([]netlink.Addr, error) { return netlink.AddrList(link, netlink.FAMILY_V6) })
		if err != nil {
			return false, unlessInterrupted(err)
		}
		routes, err := within(n, func() ([]netlink.Route, error) {
			return netlink.RouteListFiltered(netlink.FAMILY_V6, inLocalTable, netlink.RT_FILTER_OIF|netlink.RT_FILTER_TABLE)
		})
		if err != nil {
			return false, unlessInterrupted(err)
		}
		hasRoute := func(addr netlink.Addr) bool {
			return slices.ContainsFunc(routes, func(route netlink.Route) bool {
				return route.Type == unix.RTN_LOCAL && route.Dst.IP.Equal(addr.IP)
			})
		}
		linkLocal := link.Attrs().Flags&net.FlagLoopback != 0 // has none
		for _, addr := range addrs {
			if !hasRoute(addr) {
				return false, nil
			}
			linkLocal = linkLocal || addr.IP.IsLinkLocalUnicast()
		}
		return linkLocal, nil
	})
}

// RemoveAddrFrom is RemoveAddr for an interface by name.
func (n *Namespace) RemoveAddrFrom(name string, addr netip.Prefix) error {
	link, err := n.link(name)
	if err != nil {
		return err
	}
	if err := n.Do(func() error { return netlink.AddrDel(link, netlinkAddr(addr)) }); err != nil {
		return fmt.Errorf("namespace %s: remove address %s from %s: %w", n.Name, addr, name, err)
	}
	return nil
}

// unlessInterrupted is nil for the error of a list that changed while it was
// read: it is to be read again.
func unlessInterrupted(err error) error {
	if errors.Is(err, netlink.ErrDumpInterrupted) {
		return nil
	}
	return err
}

func netlinkAddr(addr netip.Prefix) *netlink.Addr {
	converted := &netlink.Addr{IPNet: &net.IPNet{
		IP:   addr.Addr().AsSlice(),
		Mask: net.CIDRMask(addr.Bits(), addr.Addr().BitLen()),
	}}
	if addr.Addr().Is6() {
		converted.Flags = unix.IFA_F_NODAD
	}
	return converted
}
