package nfnetlink

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"
)

// Family is an address family. Its value is the kernel's NFPROTO_* number.
type Family uint8

// Address families.
const (
	IPv4 Family = unix.NFPROTO_IPV4
	IPv6 Family = unix.NFPROTO_IPV6
)

// Inet is the family of tables for IPv4 and IPv6.
const Inet Family = unix.NFPROTO_INET

// String returns the family as nft writes it: "ip" or "ip6". Tables of other
// programs can have other families.
func (f Family) String() string {
	names := [...]string{
		IPv4: "ip", IPv6: "ip6", Inet: "inet", unix.NFPROTO_BRIDGE: "bridge", unix.NFPROTO_NETDEV: "netdev",
	}
	if int(f) < len(names) && names[f] != "" {
		return names[f]
	}
	return fmt.Sprintf("family %d", uint8(f))
}

// Name returns the family as people and Kubernetes write it: "IPv4" or "IPv6".
func (f Family) Name() string {
	switch f {
	case IPv4:
		return "IPv4"
	case IPv6:
		return "IPv6"
	}
	return f.String()
}

// MarshalText implements encoding.TextMarshaler with Name.
func (f Family) MarshalText() ([]byte, error) { return []byte(f.Name()), nil }

// UnmarshalText implements encoding.TextUnmarshaler for IPv4 and IPv6.
func (f *Family) UnmarshalText(text []byte) error {
	for _, known := range []Family{IPv4, IPv6} {
		if known.Name() == string(text) {
			*f = known
			return nil
		}
	}
	return fmt.Errorf("%q is neither IPv4 nor IPv6", text)
}

// Valid reports whether f is IPv4 or IPv6.
func (f Family) Valid() bool { return f == IPv4 || f == IPv6 }

// AddrLen returns the length of an address of the family in bytes, or 0 for
// an invalid family.
func (f Family) AddrLen() int {
	if !f.Valid() {
		return 0
	}
	return f.Unspecified().BitLen() / 8
}

// Unspecified returns the unspecified address of IPv4 or IPv6, which stands for
// all addresses.
func (f Family) Unspecified() netip.Addr {
	if f == IPv6 {
		return netip.IPv6Unspecified()
	}
	return netip.IPv4Unspecified()
}

// Of reports whether addr belongs to the family. An IPv4-mapped IPv6 address
// belongs to neither family.
func (f Family) Of(addr netip.Addr) bool {
	return f.Valid() && addr.IsValid() && f == FamilyOf(addr) && !addr.Is4In6()
}

// Prefixes returns the prefixes that belong to the family.
func (f Family) Prefixes(all []netip.Prefix) []netip.Prefix {
	return slices.DeleteFunc(slices.Clone(all), func(p netip.Prefix) bool { return !f.Of(p.Addr()) })
}

// FamilyOf returns the family of addr.
func FamilyOf(addr netip.Addr) Family {
	if addr.Is4() {
		return IPv4
	}
	return IPv6
}

// ProtocolName returns the name of an IP protocol as nft writes it, or its
// number.
func ProtocolName(p uint8) string {
	switch p {
	case unix.IPPROTO_TCP:
		return "tcp"
	case unix.IPPROTO_UDP:
		return "udp"
	case unix.IPPROTO_SCTP:
		return "sctp"
	case unix.IPPROTO_ICMP:
		return "icmp"
	case unix.IPPROTO_ICMPV6:
		return "ipv6-icmp"
	}
	return strconv.Itoa(int(p))
}
