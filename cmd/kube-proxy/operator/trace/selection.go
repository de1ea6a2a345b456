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
	Protocol cluster.Protocol // 0 for all
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

// of returns the part of the selection that concerns a family. ok is false if
// it selects no packets of the family.
func (s *Selection) of(f nft.Family) (part Selection, ok bool) {
	part = Selection{Protocol: s.Protocol, Source: s.Source, Ranges: f.Prefixes(s.Ranges)}
	other := func(frontend Frontend) bool { return !f.Of(frontend.Addr.Addr()) }
	part.Frontends = slices.DeleteFunc(slices.Clone(s.Frontends), other)
	return part, len(part.Frontends)+len(part.Ranges) > 0 && s.Source.isOf(f)
}

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

// protocols returns the protocols that the selection and a frontend have in
// common.
func (s *Selection) protocols(frontend Frontend) (common []cluster.Protocol) {
	for _, p := range cluster.Protocols() {
		if (s.Protocol == 0 || s.Protocol == p) && (frontend.Protocol == 0 || frontend.Protocol == p) {
			common = append(common, p)
		}
	}
	return common
}
