package proxier

import (
	"net/netip"

	"k8s.io/utils/net"
)

// parseAddr reads an address of the API. Leading zeros, which old objects can have, are read as Kubernetes does.
func parseAddr(text string) (addr netip.Addr, ok bool) {
	if addr, err := netip.ParseAddr(text); err == nil && addr.Zone() == "" {
		return addr.Unmap(), true
	}
	addr, ok = netip.AddrFromSlice(net.ParseIPSloppy(text))
	return addr.Unmap(), ok
}
