package probe

import (
	"net/netip"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// IsUnresolved reports whether this node fails to resolve the link-layer
// address of an endpoint, or of the router to it (ARP, neighbor discovery):
// packets to the endpoint end here, and a network policy does not cause that.
// It reads the network namespace of the calling thread. If the state is
// unknown, it returns false.
func IsUnresolved(endpoint netip.Addr) bool {
	routes, err := netlink.RouteGet(endpoint.AsSlice())
	if err != nil || len(routes) == 0 {
		return false
	}
	next := endpoint
	if via, ok := netip.AddrFromSlice(routes[0].Gw); ok {
		next = via.Unmap()
	}
	return neighborState(routes[0].LinkIndex, next)&(unix.NUD_INCOMPLETE|unix.NUD_FAILED) != 0
}

// neighborState returns the state of a neighbor (NUD_*), 0 if there is none.
func neighborState(link int, addr netip.Addr) int {
	family := unix.AF_INET
	if addr.Is6() {
		family = unix.AF_INET6
	}
	request := nl.NewNetlinkRequest(unix.RTM_GETNEIGH, 0)
	request.AddData(&netlink.Ndmsg{Family: uint8(family), Index: uint32(link)})
	request.AddData(nl.NewRtAttr(netlink.NDA_DST, addr.AsSlice()))
	replies, err := request.Execute(unix.NETLINK_ROUTE, unix.RTM_NEWNEIGH)
	if err != nil || len(replies) == 0 {
		return 0
	}
	found, err := netlink.NeighDeserialize(replies[0])
	if err != nil {
		return 0
	}
	return found.State
}
