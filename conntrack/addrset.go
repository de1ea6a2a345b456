package conntrack

import (
	"maps"
	"net/netip"
)

// addrSet is a set of addresses of one family.
type addrSet struct {
	addrs map[netip.Addr]struct{}
	// allLocal adds all local addresses except loopback.
	allLocal bool
}

// newAddrSet returns the set of addrs. The unspecified address stands for all
// local addresses except loopback.
func newAddrSet(addrs []netip.Addr) addrSet {
	s := addrSet{addrs: make(map[netip.Addr]struct{}, len(addrs))}
	for _, addr := range addrs {
		if addr.IsUnspecified() {
			s.allLocal = true
		} else {
			s.addrs[addr.Unmap().WithZone("")] = struct{}{}
		}
	}
	return s
}

func (s addrSet) equal(o addrSet) bool {
	return s.allLocal == o.allLocal && maps.Equal(s.addrs, o.addrs)
}

// contains reports whether addr is in the set. It calls isLocal only if the
// result depends on it.
func (s addrSet) contains(addr netip.Addr, isLocal func(netip.Addr) bool) bool {
	if _, ok := s.addrs[addr]; ok {
		return true
	}
	return s.allLocal && !addr.IsLoopback() && isLocal(addr)
}

// addMissing adds the addresses that a contains and b does not, up to maxGone
// addresses in total.
func (s *addrSet) addMissing(a, b addrSet) {
	s.allLocal = s.allLocal || a.allLocal && !b.allLocal
	for addr := range a.addrs {
		if _, ok := b.addrs[addr]; !ok && len(s.addrs) < maxGone {
			if s.addrs == nil {
				s.addrs = make(map[netip.Addr]struct{})
			}
			s.addrs[addr] = struct{}{}
		}
	}
}
