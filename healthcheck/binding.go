package healthcheck

import (
	"cmp"
	"net/netip"
	"slices"
	"strconv"

	"k8s.io/klog/v2"
)

// binding is an address and a port that a service listens on. An invalid
// address stands for all addresses of both families.
type binding struct {
	service klog.ObjectRef
	at      netip.AddrPort
}

func (b binding) compare(other binding) int {
	return cmp.Or(
		cmp.Compare(b.service.Namespace, other.service.Namespace),
		cmp.Compare(b.service.Name, other.service.Name),
		b.at.Compare(other.at),
	)
}

// listenArgs returns the arguments of net.Listen. Without an address, "tcp"
// listens on both families with one socket, or on IPv4 if the kernel has no
// IPv6. "tcp6" listens on IPv6 only.
func (b binding) listenArgs() (network, address string) {
	switch addr := b.at.Addr(); {
	case !addr.IsValid():
		return "tcp", ":" + strconv.Itoa(int(b.at.Port()))
	case addr.Is4():
		return "tcp4", b.at.String()
	}
	return "tcp6", b.at.String()
}

// normalize sorts addresses and removes invalid and repeated ones. It also
// removes the addresses that an unspecified address of their family includes:
// the kernel refuses to listen on both.
func normalize(addrs []netip.Addr) []netip.Addr {
	var out []netip.Addr
	all4 := slices.Contains(addrs, netip.IPv4Unspecified())
	all6 := slices.Contains(addrs, netip.IPv6Unspecified())
	for _, addr := range addrs {
		addr = addr.Unmap()
		included := addr.Is4() && all4 || addr.Is6() && all6
		if addr.IsValid() && (addr.IsUnspecified() || !included) {
			out = append(out, addr)
		}
	}
	slices.SortFunc(out, netip.Addr.Compare)
	return slices.Compact(out)
}
