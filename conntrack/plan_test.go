package conntrack

import (
	"net/netip"
	"slices"
	"testing"
)

// changes returns n changes of different frontends.
func changes(n int, frontend func(i int) netip.AddrPort) (changes []Change) {
	for i := range n {
		changes = append(changes, Change{Frontend: frontend(i)})
	}
	return changes
}

func vipNumber(i int) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 96, 0, byte(i)}), 53)
}

func portNumber(i int) netip.AddrPort { return netip.AddrPortFrom(addr("10.96.0.1"), uint16(1+i)) }

func portNumber6(i int) netip.AddrPort { return netip.AddrPortFrom(addr("fd96::1"), uint16(1+i)) }

// toCheck returns the check that changes need.
func toCheck(changes []Change) *check {
	f := newFrontends()
	f.update(changes)
	todo := f.take()
	return &todo
}

func TestPlan(t *testing.T) {
	const few, many = 100, 500_000 // entries: the limits are one and seven dumps
	udp4, udp6 := Filter{Family: IPv4, Protocol: udp}, Filter{Family: IPv6, Protocol: udp}
	with := func(f Filter, dst string, port uint16) Filter {
		f.Original.DstPort = port
		if dst != "" {
			f.Original.Dst = addr(dst)
		}
		return f
	}
	for name, tc := range map[string]struct {
		changes []Change
		entries int
		want    []Filter
	}{
		"nothing":      {nil, many, nil},
		"invalid only": {[]Change{{}, change("10.96.0.1:0")}, many, nil},
		"one each": {
			[]Change{change("10.96.0.2:53"), change("10.96.0.1:54"), change("0.0.0.0:30053"), change("10.96.0.1:54")}, many,
			[]Filter{with(udp4, "", 30053), with(udp4, "10.96.0.1", 54), with(udp4, "10.96.0.2", 53)},
		},
		"one":        {[]Change{change("10.96.0.2:53")}, few, []Filter{with(udp4, "10.96.0.2", 53)}},
		"few flows":  {changes(2, portNumber), few, []Filter{udp4}},
		"seven":      {changes(7, portNumber), many, sevenPorts(with, udp4)},
		"one port":   {changes(2, vipNumber), few, []Filter{with(udp4, "", 53)}},
		"many VIPs":  {changes(8, vipNumber), many, []Filter{with(udp4, "", 53)}},
		"many ports": {changes(8, portNumber), many, []Filter{udp4}},
		"IPv6 by port": {
			[]Change{change("[fd96::1]:53"), change("[fd96::2]:53"), change("[::]:53")}, many,
			[]Filter{with(udp6, "", 53)},
		},
		"many IPv6 ports": {changes(8, portNumber6), many, []Filter{udp6}},
		"both families": {
			append(changes(8, portNumber), change("[fd96::1]:53")), many,
			[]Filter{udp4, with(udp6, "", 53)},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if got := plan(toCheck(tc.changes), tc.entries); !slices.Equal(got, tc.want) {
				t.Errorf("got %v\nwant %v", got, tc.want)
			}
		})
	}
}

func TestMaxDumps(t *testing.T) {
	for entries, want := range map[int]int{0: 1, 100: 1, 10_000: 2, 100_000: 6, 500_000: 7, 10_000_000: 7, 1 << 30: 7} {
		if got := maxDumps(entries); got != want {
			t.Errorf("%d dumps for %d entries, want %d", got, entries, want)
		}
	}
}

// sevenPorts returns the filters for portNumber(0) to portNumber(6).
func sevenPorts(with func(Filter, string, uint16) Filter, f Filter) (filters []Filter) {
	for i := range 7 {
		filters = append(filters, with(f, "10.96.0.1", portNumber(i).Port()))
	}
	return filters
}

// Each plan lists all flows to the changed frontends.
func TestPlanCoversEveryFrontend(t *testing.T) {
	for n := range 20 {
		for _, frontend := range []func(int) netip.AddrPort{vipNumber, portNumber, portNumber6} {
			filters := plan(toCheck(changes(n, frontend)), 500_000)
			for i := range n {
				dst := frontend(i)
				flow := Flow{Protocol: udp, Original: Tuple{Src: dst, Dst: dst}, Reply: Tuple{Src: dst, Dst: dst}}
				if !slices.ContainsFunc(filters, func(f Filter) bool { return f.Match(flow) }) {
					t.Errorf("%d frontends: no dump lists flows to %v: %v", n, dst, filters)
				}
			}
		}
	}
}
