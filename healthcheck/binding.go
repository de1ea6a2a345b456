package healthcheck

import (
	"cmp"
	"net"
	"net/netip"
	"slices"
	"strconv"
)

// binding is a place where a service is answered for. With an invalid address it is every address of the node, of both
// families.
type binding struct {
	service name
	at      netip.AddrPort
}

func (b binding) compare(other binding) int {
	return cmp.Or(
		cmp.Compare(b.service.namespace, other.service.namespace),
		cmp.Compare(b.service.name, other.service.name),
		b.at.Compare(other.at),
	)
}

// network and address are what net.Listen wants. "tcp" without an address listens on both families with one socket, or
// on IPv4 where the kernel has no IPv6; "tcp6" leaves IPv4 to a socket of its own.
func (b binding) network() (network, address string) {
	port := strconv.Itoa(int(b.at.Port()))
	switch addr := b.at.Addr(); {
	case !addr.IsValid():
		return "tcp", net.JoinHostPort("", port)
	case addr.Is4():
		return "tcp4", net.JoinHostPort(addr.String(), port)
	default:
		return "tcp6", net.JoinHostPort(addr.String(), port)
	}
}

// normalize gives addresses in order, each once, and leaves out those that an unspecified address of their family
// covers: the two could not be listened on together.
func normalize(addrs []netip.Addr) []netip.Addr {
	var out []netip.Addr
	all := make(map[bool]bool) // whether IPv4 is: whether there is an unspecified address
	for _, addr := range addrs {
		if addr = addr.Unmap(); addr.IsValid() {
			out = append(out, addr)
			all[addr.Is4()] = all[addr.Is4()] || addr.IsUnspecified()
		}
	}
	out = slices.DeleteFunc(out, func(addr netip.Addr) bool { return all[addr.Is4()] && !addr.IsUnspecified() })
	slices.SortFunc(out, netip.Addr.Compare)
	return slices.Compact(out)
}
