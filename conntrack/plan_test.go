package conntrack

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
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

// A pass asks the kernel for the flows to few frontends and endpoints only: as
// many narrow dumps as cost less than they save.
func TestPlan(t *testing.T) {
	const few, many = 100, 500_000 // entries; the limits are one and seven dumps
	vips := func(all ...string) (out []FrontendChange) {
		for _, vip := range all {
			out = append(out, change(vip))
		}
		return out
	}
	removals := func(n int, format string) (out []Removal) {
		for i := range n {
			out = append(out, removalOf(fmt.Sprintf(strings.TrimSuffix(format, "."), i)))
		}
		return out
	}
	ofSCTP := removalOf("10.244.0.5:9")
	ofSCTP.Protocol = sctp
	ofPort := func(port int) string {
		return fmt.Sprintf("IPv4 protocol 6 translated flows with replies from port %d", port)
	}
	of := func(n int) string {
		return strings.Replace(ofPort(80), "replies", fmt.Sprintf("replies from 10.244.0.%d with replies", n), 1)
	}
	var seven []string
	for i := range 7 {
		seven = append(seven, fmt.Sprintf("IPv4 protocol 17 flows to 10.96.0.1 to port %d", 1+i))
	}
	const udp4, udp6 = "IPv4 protocol 17 flows", "IPv6 protocol 17 flows"
	for name, tc := range map[string]struct {
		changes  []FrontendChange
		removals []Removal
		entries  int
		want     []string
	}{
		"no changes":   {nil, nil, many, nil},
		"invalid only": {[]FrontendChange{{}, {Gone: true}, change("10.96.0.1:0")}, nil, many, nil},
		"one each": {vips("10.96.0.2:53", "10.96.0.1:54", "0.0.0.0:30053", "10.96.0.1:54"), nil, many,
			[]string{udp4 + " to port 30053", udp4 + " to 10.96.0.1 to port 54", udp4 + " to 10.96.0.2 to port 53"}},
		"one":             {vips("10.96.0.2:53"), nil, few, []string{udp4 + " to 10.96.0.2 to port 53"}},
		"few flows":       {changes(2, numberedPort), nil, few, []string{udp4}},
		"seven":           {changes(7, numberedPort), nil, many, seven},
		"one port":        {changes(2, numberedVIP), nil, few, []string{udp4 + " to port 53"}},
		"many VIPs":       {changes(8, numberedVIP), nil, many, []string{udp4 + " to port 53"}},
		"many ports":      {changes(8, numberedPort), nil, many, []string{udp4}},
		"IPv6 by port":    {vips("[fd96::1]:53", "[fd96::2]:53", "[::]:53"), nil, many, []string{udp6 + " to port 53"}},
		"many IPv6 ports": {changes(8, numberedPort6), nil, many, []string{udp6}},
		"both families": {append(changes(8, numberedPort), change("[fd96::1]:53")), nil, many,
			[]string{udp4, udp6 + " to port 53"}},

		"an endpoint":              {nil, removals(1, "10.244.0.%d:80"), few, []string{of(0)}},
		"endpoint of two services": {nil, slices.Repeat(removals(1, "10.244.0.%d:80"), 2), few, []string{of(0)}},
		"two of a port":            {nil, removals(2, "10.244.0.%d:80"), many, []string{of(0), of(1)}},
		"endpoints of a port":      {nil, removals(8, "10.244.0.%d:80"), many, []string{ofPort(80)}},
		"three of a port, one of another": {
			nil, append(removals(3, "10.244.0.%d:80"), removalOf("10.244.0.5:90")), many,
			[]string{ofPort(80), strings.ReplaceAll(of(5), "port 80", "port 90")}},
		"IPv6 endpoints of a port": {nil, removals(8, "[fd24::%d]:80"), few,
			[]string{"IPv6 protocol 6 translated flows with replies from port 80"}},
		"endpoints of many ports": {nil, append(removals(8, "10.244.0.5:8%d"), ofSCTP), many,
			[]string{"IPv4 protocol 6 translated flows", "IPv4 protocol 132 translated flows"}},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFrontends()
			f.Update(tc.changes...)
			f.Remove(tc.removals...)
			todo := f.take()
			var got []string
			for _, s := range plan(&todo, tc.entries) {
				got = append(got, s.String())
			}
			if !slices.Equal(got, tc.want) {
				t.Errorf("got %q\nwant %q", got, tc.want)
			}
		})
	}
}

// Attempts to connect while rules were missing need a dump for each family,
// also after the check was merged with another.
func TestPlanMissed(t *testing.T) {
	f := newFrontends()
	f.Miss(IPv4, addrPorts("10.96.0.12:80", "10.96.0.10:80"))
	f.Miss(IPv6, addrPorts("[fd96::10]:80"))
	taken := f.take()
	var todo check
	todo.merge(taken)
	want := []Selection{{Family: IPv4, Protocol: tcp, lost: true}, {Family: IPv6, Protocol: tcp, lost: true}}
	if got := plan(&todo, 100); !slices.Equal(got, want) {
		t.Errorf("got %v\nwant %v", got, want)
	}
}

func TestMaxDumps(t *testing.T) {
	for entries, want := range map[int]int{0: 1, 100: 1, 10_000: 2, 100_000: 6, 500_000: 7, 10_000_000: 7, 1 << 30: 7} {
		if got := maxDumps(entries); got != want {
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
	endpoints := manyEndpoints(1_000_000)
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

func manyEndpoints(n int) []netip.AddrPort {
	endpoints := make([]netip.AddrPort, n)
	for i := range endpoints {
		endpoints[i] = netip.AddrPortFrom(numbered(10, i), 53)
	}
	return endpoints
}

func BenchmarkLostEndpoint10000(b *testing.B) {
	endpoints := manyEndpoints(10_001)
	b.ReportAllocs()
	for b.Loop() {
		if lostEndpoint(endpoints[:10_000], endpoints) {
			b.Fatal("got a lost endpoint, want none")
		}
	}
}
