package conntrack

import (
	"maps"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"
)

// maxDumps is how many narrow dumps a pass makes of one family before it makes one wide one instead.
//
// The kernel walks the whole hash table for every dump, whatever the filter; what the filter saves is the message for
// each flow that it holds back, here and there. MEASURE
const maxDumps = 8

// plan chooses the dumps that show all flows to the changed frontends: for each family one per frontend, or if those
// would be too many one per port, or if even those would be, one of all its UDP flows. IPv6 starts with one per port,
// for the kernel cannot be asked for an IPv6 address.
func plan(f frontends) []Filter {
	var filters []Filter
	for _, family := range []Family{IPv4, IPv6} {
		dsts := f.destinations(family)
		exact := distinct(dsts, byDestination)
		ports := distinct(dsts, byPort)
		switch {
		case len(exact) <= maxDumps && family == IPv4:
			filters = append(filters, exact...)
		case len(ports) <= maxDumps:
			filters = append(filters, ports...)
		default:
			filters = append(filters, Filter{Family: family, Protocol: unix.IPPROTO_UDP})
		}
	}
	return filters
}

// destinations are the frontends of a family in order, NodePorts on all addresses with the unspecified address.
func (f frontends) destinations(family Family) []netip.AddrPort {
	var dsts []netip.AddrPort
	for vip := range maps.Keys(f.vips) {
		if familyOf(vip.Addr()) == family {
			dsts = append(dsts, vip)
		}
	}
	unspecified := map[Family]netip.Addr{IPv4: netip.IPv4Unspecified(), IPv6: netip.IPv6Unspecified()}[family]
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
