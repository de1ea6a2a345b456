package main

import (
	"net/netip"
	"slices"

	"github.com/nftproxy/nftproxy/test/apiserver/scale/stage"
)

// stock knows which Services there are and what endpoints they have. A Service is a number; the addresses of its endpoints follow from
// it unless they were changed.
type stock struct {
	endpoints int
	services  int                  // 0 to services-1 are there
	changed   map[int][]netip.Addr // endpoints of Services that were changed
	fresh     uint32               // addresses that changes brought
	extra     int                  // Services that came for a while, which have the numbers from stage.MaxServices
	witnesses []int                // those of them that are there
}

func newStock(endpoints int) *stock {
	return &stock{endpoints: endpoints, changed: map[int][]netip.Addr{}}
}

// addrs returns the endpoints of a Service.
func (s *stock) addrs(service int) []netip.Addr {
	if addrs, ok := s.changed[service]; ok {
		return slices.Clone(addrs)
	}
	return stage.Endpoints(service, s.endpoints)
}

// freshAddr returns the address of an endpoint that never was there.
func (s *stock) freshAddr() netip.Addr {
	s.fresh++
	return stage.Nth(netip.AddrFrom4([4]byte{10, 192, 0, 0}), s.fresh)
}

// freshAddrs returns the endpoints of a Service that never was there.
func (s *stock) freshAddrs() []netip.Addr {
	addrs := make([]netip.Addr, s.endpoints)
	for i := range addrs {
		addrs[i] = s.freshAddr()
	}
	return addrs
}

// extraService returns the number of a Service that never was there.
func (s *stock) extraService() int {
	s.extra++
	return stage.MaxServices + s.extra - 1
}

// frontends returns those of all Services.
func (s *stock) frontends() []netip.AddrPort {
	all := make([]netip.AddrPort, s.services)
	for i := range all {
		all[i] = stage.Frontend(i)
	}
	return all
}
