package trace

import (
	"net/netip"
	"slices"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
)

// Selection selects packets: those to one of the frontends or ranges, from the
// source.
type Selection struct {
	Frontends []Frontend
	// Ranges are destinations with any port.
	Ranges []netip.Prefix
	// Protocol is the number of TCP, UDP or SCTP, 0 for all three.
	Protocol cluster.Protocol
	Source   Source
}

// Frontend is an address of a Service. A NodePort has the unspecified address.
type Frontend struct {
	Addr     netip.AddrPort
	Protocol cluster.Protocol
}

// Source selects packets by where they come from. The zero Source selects all.
type Source struct {
	// NotNode excludes packets of this node, NotOthers all other packets.
	NotNode, NotOthers bool
	// Within and Except are ranges of source addresses, at most one of each
	// family. If Within has ranges, all sources of a family without one are
	// excluded.
	Within, Except []netip.Prefix
}

// concerns reports whether it selects packets of a family.
func (s *Selection) concerns(f nft.Family) bool {
	frontend := slices.ContainsFunc(s.Frontends, func(frontend Frontend) bool { return f.Of(frontend.Addr.Addr()) })
	return (frontend || len(f.Prefixes(s.Ranges)) > 0) && s.Source.isOf(f)
}

// traces reports whether it selects packets of a protocol.
func (s *Selection) traces(p cluster.Protocol) bool { return s.Protocol == 0 || s.Protocol == p }

// isOf reports whether packets of a family can have the source.
func (s *Source) isOf(f nft.Family) bool {
	_, within := rangeOf(f, s.Within)
	return within || len(s.Within) == 0
}

// rangeOf returns the range of a family.
func rangeOf(f nft.Family, ranges []netip.Prefix) (p netip.Prefix, ok bool) {
	if ranges = f.Prefixes(ranges); len(ranges) == 0 {
		return p, false
	}
	return ranges[0], true
}
