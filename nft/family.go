package nft

import (
	"net/netip"

	"github.com/nftproxy/nftproxy/nft/nfnetlink"
)

// Family is the address family of a table.
type Family = nfnetlink.Family

// Address families of tables. Tables of other programs can be of the family
// Inet; the package does not write such tables.
const (
	IPv4 = nfnetlink.IPv4
	IPv6 = nfnetlink.IPv6
	Inet = nfnetlink.Inet
)

// FamilyOf returns the family of addr.
func FamilyOf(addr netip.Addr) Family { return nfnetlink.FamilyOf(addr) }

// ofFamily returns the value for IPv4 or for IPv6.
func ofFamily[T any](f Family, v4, v6 T) T {
	if f == IPv4 {
		return v4
	}
	return v6
}
