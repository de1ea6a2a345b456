package route

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Routes are the routes of the network namespace in which they were opened.
// They implement walk.Host.
type Routes struct{ handle *netlink.Handle }

// Open opens the routes of the network namespace of the calling thread.
func Open() (*Routes, error) {
	handle, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("open netlink socket: %w", err)
	}
	return &Routes{handle}, nil
}

// Close closes the connection to the kernel.
func (r *Routes) Close() { r.handle.Close() }

// RouteType implements walk.Host. An address without a route has type
// RTN_UNREACHABLE.
func (r *Routes) RouteType(addr netip.Addr) (uint32, error) {
	route, err := r.route(addr)
	switch {
	case isUnreachable(err):
		return unix.RTN_UNREACHABLE, nil
	case err != nil:
		return 0, err
	}
	return uint32(route.Type), nil
}

// Interface implements walk.Host.
func (r *Routes) Interface(addr netip.Addr) (string, error) {
	route, err := r.route(addr)
	if err != nil {
		return "", fmt.Errorf("find the interface on which packets from %s arrive: %w", addr, err)
	}
	link, err := r.handle.LinkByIndex(route.LinkIndex)
	if err != nil {
		return "", fmt.Errorf("find interface %d: %w", route.LinkIndex, err)
	}
	return link.Attrs().Name, nil
}

// InterfaceIndex implements walk.Host.
func (r *Routes) InterfaceIndex(name string) (uint32, error) {
	link, err := r.handle.LinkByName(name)
	if err != nil {
		return 0, fmt.Errorf("find interface %s: %w", name, err)
	}
	return uint32(link.Attrs().Index), nil
}

// NodeSource returns the source address of packets from this node to an
// address.
func (r *Routes) NodeSource(to netip.Addr) (netip.Addr, error) {
	route, err := r.route(to)
	if isUnreachable(err) {
		return netip.Addr{}, fmt.Errorf("this node has no route to %s: connecting fails before any rule", to)
	}
	if err != nil {
		return netip.Addr{}, err
	}
	source, ok := netip.AddrFromSlice(route.Src)
	if !ok {
		return netip.Addr{}, fmt.Errorf("the route to %s has no source address", to)
	}
	return source.Unmap(), nil
}

// HasIPsec reports whether the kernel has IPsec policies.
func (r *Routes) HasIPsec() (bool, error) {
	policies, err := r.handle.XfrmPolicyList(netlink.FAMILY_ALL)
	return len(policies) > 0, err
}

// isUnreachable reports whether an error is the answer that the kernel does not
// route a packet. EXDEV is the error of rp_filter before Linux 6.14, EAGAIN
// that of a route of type throw.
func isUnreachable(err error) bool {
	unreachable := []unix.Errno{
		unix.ENETUNREACH, unix.EHOSTUNREACH, unix.EACCES, unix.EINVAL, unix.EXDEV, unix.EAGAIN,
	}
	return slices.ContainsFunc(unreachable, func(errno unix.Errno) bool { return errors.Is(err, errno) })
}

// route returns the route of this node to an address.
func (r *Routes) route(addr netip.Addr) (netlink.Route, error) {
	routes, err := r.handle.RouteGet(addr.AsSlice())
	if err != nil {
		return netlink.Route{}, fmt.Errorf("find the route to %s: %w", addr, err)
	}
	if len(routes) == 0 {
		return netlink.Route{}, fmt.Errorf("find the route to %s: no answer", addr)
	}
	return routes[0], nil
}
