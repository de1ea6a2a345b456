package conntrack

import (
	"cmp"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"
)

// plan returns the dumps that list all flows to the frontends to check, for a
// table with this number of entries. For each family these are one dump per
// frontend, or one per port if that would cost more than it saves, or else one
// of all UDP flows. IPv6 starts with one per port, because the kernel cannot
// filter IPv6 addresses.
func plan(c *check, entries int) []Filter {
	limit := maxDumps(entries)
	var filters []Filter
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
			filters = append(filters, Filter{Family: family, Protocol: unix.IPPROTO_UDP})
		}
	}
	return filters
}

// maxDumps returns how many narrow dumps cost no more than one wide dump.
//
// The kernel walks its whole hash table for each dump. A filter only saves the
// messages for the flows that it excludes. Measured on Linux 6.18 with 262,144
// buckets (the default from 4 GiB of memory on), a walk takes 8.6 ms plus
// 0.25 µs per entry, and a message takes 1.7 µs in the kernel and here. So one
// more walk pays if it saves the messages for about 5,000 flows plus a seventh
// of all entries. It cannot save more than all entries.
func maxDumps(entries int) int {
	return 1 + entries/(5000+entries/7)
}

func byDestination(family Family, dst netip.AddrPort) Filter {
	f := byPort(family, dst.Port())
	if !dst.Addr().IsUnspecified() {
		f.Original.Dst = dst.Addr()
	}
	return f
}

func byPort(family Family, port uint16) Filter {
	return Filter{Family: family, Protocol: unix.IPPROTO_UDP, Original: TupleFilter{DstPort: port}}
}
