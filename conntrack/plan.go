package conntrack

import (
	"cmp"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"
)

// plan returns the dumps that list all flows to the frontends and removed
// endpoints of a check, for a table with this number of entries. If one dump
// per frontend or endpoint costs more than it saves, there is one dump per
// port, or else one dump of all flows of a protocol. IPv6 starts with one dump
// per port, because the kernel cannot filter by IPv6 address.
func plan(c *check, entries int) []dumpFilter {
	limit := maxDumps(entries)
	var filters []dumpFilter
	for _, family := range []Family{IPv4, IPv6} {
		f := c.of(family)
		switch {
		case family == IPv4 && f.dsts.atMost(limit):
			for _, dst := range slices.SortedFunc(slices.Values(f.dsts.values), netip.AddrPort.Compare) {
				filters = append(filters, byDestination(family, dst))
			}
		case f.ports.atMost(limit):
			for _, port := range slices.SortedFunc(slices.Values(f.ports.values), cmp.Compare[uint16]) {
				filters = append(filters, byPort(family, port))
			}
		default:
			filters = append(filters, dumpFilter{family: family, protocol: unix.IPPROTO_UDP})
		}
		filters = append(filters, removalFilters(f.removals, family, limit)...)
		if len(f.missed) > 0 {
			filters = append(filters, dumpFilter{family: family, protocol: unix.IPPROTO_TCP, lost: true})
		}
	}
	return filters
}

// maxDumps returns how many narrow dumps cost no more than one wide dump.
//
// The kernel walks its whole hash table for each dump. A filter only saves
// the messages for the flows that it excludes. Measured on Linux 6.18 with
// 262,144 buckets (the default from 4 GiB of memory on), a walk takes 8.6 ms
// plus 0.25 µs per entry, and a message takes 1.7 µs in the kernel and here.
// So one more walk pays if it saves the messages for about 5,000 flows plus
// a seventh of all entries. It cannot save more than all entries.
func maxDumps(entries int) int {
	return 1 + entries/(5000+entries/7)
}

func byDestination(family Family, dst netip.AddrPort) dumpFilter {
	f := byPort(family, dst.Port())
	if !dst.Addr().IsUnspecified() {
		f.dst = dst.Addr()
	}
	return f
}

func byPort(family Family, port uint16) dumpFilter {
	return dumpFilter{family: family, protocol: unix.IPPROTO_UDP, dstPort: port}
}
