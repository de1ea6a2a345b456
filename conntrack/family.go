package conntrack

import (
	"net/netip"

	"github.com/nftproxy/nftproxy/nft/nfnetlink"
)

// Family is an address family.
type Family = nfnetlink.Family

// The address families of flows.
const (
	IPv4 = nfnetlink.IPv4
	IPv6 = nfnetlink.IPv6
)

// familyOf returns the family of a valid address that is not IPv4-mapped.
func familyOf(addr netip.Addr) Family { return nfnetlink.FamilyOf(addr) }
