package conntrack

import (
	"net/netip"
	"slices"
	"testing"
)

// lostEndpoint agrees with a comparison of sets.
func TestLostEndpoint(t *testing.T) {
	subset := func(bits int) (endpoints []netip.AddrPort) {
		for i := range 5 {
			if bits>>i&1 != 0 {
				endpoints = append(endpoints, numberedVIP(i))
			}
		}
		return endpoints
	}
	for before := range 32 {
		for now := range 32 {
			if got, want := lostEndpoint(subset(before), subset(now)), before&^now != 0; got != want {
				t.Errorf("lostEndpoint(%v, %v): got %v, want %v", subset(before), subset(now), got, want)
			}
		}
	}
}

// The comparison of endpoints takes linear time. In quadratic time, this test
// would take hours.
func TestManyEndpoints(t *testing.T) {
	endpoints := make([]netip.AddrPort, 2_000_000)
	for i := range endpoints {
		endpoints[i] = netip.AddrPortFrom(numbered(10, i), 53)
	}
	frontend := addrPort("10.96.0.10:53")
	f := newFrontends()
	f.Update(FrontendChange{Frontend: frontend, Endpoints: endpoints[1:]})
	f.take()
	f.Update(FrontendChange{Frontend: frontend, Endpoints: slices.Clone(endpoints)})
	if todo := f.take(); !todo.empty() {
		t.Errorf("one endpoint added: got %+v, want no check", todo)
	}
	without := slices.Delete(slices.Clone(endpoints), 1_000_000, 1_000_001)
	f.Update(FrontendChange{Frontend: frontend, Endpoints: without})
	if todo := f.take(); todo.empty() {
		t.Error("one endpoint removed: got no check")
	}
}

func BenchmarkLostEndpoint10000(b *testing.B) {
	endpoints := make([]netip.AddrPort, 10_001)
	for i := range endpoints {
		endpoints[i] = netip.AddrPortFrom(numbered(10, i), 53)
	}
	b.ReportAllocs()
	for b.Loop() {
		if lostEndpoint(endpoints[:10_000], endpoints) {
			b.Fatal("got a lost endpoint, want none")
		}
	}
}
