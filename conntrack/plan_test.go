package conntrack

import (
	"net/netip"
	"runtime"
	"slices"
	"testing"
)

// changes returns changes of n frontends.
func changes(n int, frontend func(i int) netip.AddrPort) (changes []FrontendChange) {
	for i := range n {
		changes = append(changes, FrontendChange{Frontend: frontend(i)})
	}
	return changes
}

func numberedVIP(i int) netip.AddrPort { return netip.AddrPortFrom(numbered(10, 96<<16+i), 53) }

func numberedPort(i int) netip.AddrPort { return netip.AddrPortFrom(addr("10.96.0.1"), uint16(1+i)) }

func numberedPort6(i int) netip.AddrPort { return netip.AddrPortFrom(addr("fd96::1"), uint16(1+i)) }

func TestMaxDumps(t *testing.T) {
	for entries, want := range map[int]int{0: 1, 100: 1, 10_000: 2, 100_000: 6, 500_000: 7, 10_000_000: 7, 1 << 30: 7} {
		if got := MaxDumps(entries); got != want {
			t.Errorf("%d entries: got %d dumps, want %d", entries, got, want)
		}
	}
}

// Each plan lists all flows to the changed frontends.
func TestPlanIncludesAllFrontends(t *testing.T) {
	for n := range 20 {
		for _, frontend := range []func(int) netip.AddrPort{numberedVIP, numberedPort, numberedPort6} {
			f := newFrontends()
			f.Update(changes(n, frontend)...)
			todo := f.take()
			filters := plan(&todo, 500_000)
			for i := range n {
				dst := frontend(i).String()
				flow := newFlow(udp, dst, dst, dst)
				if !slices.ContainsFunc(filters, func(f Selection) bool { return f.matches(flow) }) {
					t.Errorf("%d frontends: got %v, want a dump of flows to %v", n, filters, dst)
				}
			}
		}
	}
}

// Only a change that can leave stale flows needs a check: a new frontend, a
// lost endpoint or the first one. lostEndpoint agrees with a comparison of
// sets.
func TestUpdateRecordsChecks(t *testing.T) {
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
			f := newFrontends()
			f.Update(FrontendChange{Frontend: numberedVIP(9), Endpoints: subset(before)})
			begun := f.take()
			f.Update(FrontendChange{Frontend: numberedVIP(9), Endpoints: subset(now)})
			todo := f.take()
			want := before&^now != 0 || before == 0 && now != 0
			if begun.empty() || todo.empty() == want {
				t.Errorf("%v, then %v: got checks %+v, %+v, want one, and one: %v",
					subset(before), subset(now), begun, todo, want)
			}
		}
	}
}

// The comparison of endpoints takes linear time. In quadratic time, this test
// would take hours.
func TestManyEndpoints(t *testing.T) {
	endpoints := make([]netip.AddrPort, 1_000_000)
	for i := range endpoints {
		endpoints[i] = netip.AddrPortFrom(numbered(10, i), 53)
	}
	f := newFrontends()
	update := func(endpoints []netip.AddrPort) check {
		f.Update(FrontendChange{Frontend: numberedVIP(1), Endpoints: endpoints})
		return f.take()
	}
	update(endpoints[1:])
	if todo := update(slices.Clone(endpoints)); !todo.empty() {
		t.Errorf("one endpoint added: got %+v, want no check", todo)
	}
	if todo := update(slices.Delete(slices.Clone(endpoints), 500_000, 500_001)); todo.empty() {
		t.Error("one endpoint removed: got no check")
	}
}

// The memory of many frontends is released with them.
func TestFrontendsReleaseMemory(t *testing.T) {
	heap := func() uint64 {
		var stats runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&stats)
		return stats.HeapAlloc
	}
	f := newFrontends()
	before := heap()
	for i := range 200_000 {
		f.Update(FrontendChange{Frontend: numberedVIP(i)})
	}
	f.take()
	for i := range 199_900 {
		f.Update(FrontendChange{Frontend: numberedVIP(i), Gone: true})
		f.take()
	}
	if after := heap(); after > before+1<<20 {
		t.Errorf("%d bytes are left", after-before)
	}
	if n := len(f.ipv4.endpoints); n != 100 {
		t.Errorf("got %d frontends, want 100", n)
	}
}
