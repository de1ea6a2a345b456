package conntrack

import "net/netip"

// addrSet is a set of addresses of one family. The unspecified address stands
// for all local addresses except loopback.
type addrSet map[netip.Addr]struct{}

func newAddrSet(addrs []netip.Addr) addrSet {
	s := make(addrSet, len(addrs))
	for _, addr := range addrs {
		s[addr.Unmap().WithZone("")] = struct{}{}
	}
	return s
}

// contains reports whether addr is in the set. It calls isLocal only if the
// result depends on it.
func (s addrSet) contains(addr netip.Addr, isLocal func(netip.Addr) bool) bool {
	if _, ok := s[addr]; ok {
		return true
	}
	_, allLocal := s[familyOf(addr).Unspecified()]
	return allLocal && !addr.IsLoopback() && isLocal(addr)
}

// addMissing adds the addresses that a contains and b does not, up to maxGone
// addresses in total.
func (s *addrSet) addMissing(a, b addrSet) {
	for addr := range a {
		if _, ok := b[addr]; !ok && len(*s) < maxGone {
			if *s == nil {
				*s = make(addrSet)
			}
			(*s)[addr] = struct{}{}
		}
	}
}
