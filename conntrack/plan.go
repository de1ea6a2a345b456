package conntrack

import (
	"maps"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"
)

// plan chooses the dumps that show all flows to the changed frontends, when the table has so many entries: for each
// family one per frontend, or if those would cost more than they save one per port, or else one of all its UDP flows.
// IPv6 starts with one per port, for the kernel cannot be asked for an IPv6 address.
func plan(f frontends, entries int) []Filter {
	var filters []Filter
	for _, family := range []Family{IPv4, IPv6} {
		dsts := f.destinations(family)
		exact := distinct(dsts, byDestination)
		ports := distinct(dsts, byPort)
		switch {
		case family == IPv4 && len(exact) <= maxDumps(entries):
			filters = append(filters, exact...)
		case len(ports) <= maxDumps(entries):
			filters = append(filters, ports...)
		default:
			filters = append(filters, Filter{Family: family, Protocol: unix.IPPROTO_UDP})
		}
	}
	return filters
}

// maxDumps is how many narrow dumps cost no more than one wide one.
//
// The kernel walks its whole hash table for every dump, whatever the filter; what a filter saves is the message for
// each flow that it holds back. Measured on Linux 6.18 with 262,144 buckets (the default from 4 GiB of memory on): a
// walk takes 8.6 ms and 0.25 µs for each entry, a message 1.7 µs, here and there together. So a further walk is worth
// it if it saves messages for some 5,000 flows and a seventh of all entries. At most all entries are saved.
func maxDumps(entries int) int {
	return 1 + entries/(5000+entries/7)
}

// destinations are the frontends of a family in order, NodePorts on all addresses with the unspecified address.
func (f frontends) destinations(family Family) []netip.AddrPort {
	var dsts []netip.AddrPort
	for vip := range maps.Keys(f.vips) {
		if familyOf(vip.Addr()) == family {
			dsts = append(dsts, vip)
		}
	}
	unspecified := netip.IPv4Unspecified()
	if family == IPv6 {
		unspecified = netip.IPv6Unspecified()
	}
	for np := range maps.Keys(f.nodePorts) {
		if np.family == family {
			dsts = append(dsts, netip.AddrPortFrom(unspecified, np.port))
		}
	}
	slices.SortFunc(dsts, netip.AddrPort.Compare)
	return dsts
}

func byDestination(dst netip.AddrPort) Filter {
	f := byPort(dst)
	if !dst.Addr().IsUnspecified() {
		f.Original.Dst = dst.Addr()
	}
	return f
}

func byPort(dst netip.AddrPort) Filter {
	return Filter{
		Family:   familyOf(dst.Addr()),
		Protocol: unix.IPPROTO_UDP,
		Original: TupleFilter{DstPort: dst.Port()},
	}
}

// distinct gives the filters for destinations, each once, in the order of the destinations.
func distinct(dsts []netip.AddrPort, filter func(netip.AddrPort) Filter) []Filter {
	var filters []Filter
	seen := make(map[Filter]struct{})
	for _, dst := range dsts {
		f := filter(dst)
		if _, ok := seen[f]; !ok {
			seen[f] = struct{}{}
			filters = append(filters, f)
		}
	}
	return filters
}
