package conntrack

import (
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"
)

// Family is an address family, with the numbers of nfnetlink (NFPROTO_IPV4,
// NFPROTO_IPV6).
type Family uint8

// The address families of flows.
const (
	IPv4 Family = unix.NFPROTO_IPV4
	IPv6 Family = unix.NFPROTO_IPV6
)

func (f Family) String() string {
	switch f {
	case IPv4:
		return "IPv4"
	case IPv6:
		return "IPv6"
	default:
		return fmt.Sprintf("family %d", uint8(f))
	}
}

// familyOf returns the family of a valid address that is not IPv4-mapped.
func familyOf(addr netip.Addr) Family {
	if addr.Is4() {
		return IPv4
	}
	return IPv6
}

func unspecified(family Family) netip.Addr {
	if family == IPv6 {
		return netip.IPv6Unspecified()
	}
	return netip.IPv4Unspecified()
}
