package conntrack

import (
	"net/netip"
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

func numberedVIP(i int) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 96, 0, byte(i)}), 53)
}

func numberedPort(i int) netip.AddrPort { return netip.AddrPortFrom(addr("10.96.0.1"), uint16(1+i)) }

func numberedPort6(i int) netip.AddrPort { return netip.AddrPortFrom(addr("fd96::1"), uint16(1+i)) }

// toCheck returns the check that changes need.
func toCheck(changes []FrontendChange) *check {
	f := newFrontends()
	f.Update(changes...)
	todo := f.take()
	return &todo
}

func TestPlan(t *testing.T) {
	const few, many = 100, 500_000 // entries; the limits are one and seven dumps
	udp4, udp6 := Selection{Family: IPv4, Protocol: udp}, Selection{Family: IPv6, Protocol: udp}
	port6 := Selection{Family: IPv6, Protocol: udp, Port: 53}
	port4 := func(port uint16) Selection { return Selection{Family: IPv4, Protocol: udp, Port: port} }
	for name, tc := range map[string]struct {
		changes []FrontendChange
		entries int
		want    []Selection
	}{
		"no changes":   {nil, many, nil},
		"invalid only": {[]FrontendChange{{}, change("10.96.0.1:0")}, many, nil},
		"one each": {
			[]FrontendChange{
				change("10.96.0.2:53"), change("10.96.0.1:54"), change("0.0.0.0:30053"), change("10.96.0.1:54"),
			},
			many,
			[]Selection{port4(30053), to("10.96.0.1:54"), to("10.96.0.2:53")},
		},
		"one":        {[]FrontendChange{change("10.96.0.2:53")}, few, []Selection{to("10.96.0.2:53")}},
		"few flows":  {changes(2, numberedPort), few, []Selection{udp4}},
		"seven":      {changes(7, numberedPort), many, sevenPorts()},
		"one port":   {changes(2, numberedVIP), few, []Selection{port4(53)}},
		"many VIPs":  {changes(8, numberedVIP), many, []Selection{port4(53)}},
		"many ports": {changes(8, numberedPort), many, []Selection{udp4}},
		"IPv6 by port": {
			[]FrontendChange{change("[fd96::1]:53"), change("[fd96::2]:53"), change("[::]:53")}, many,
			[]Selection{port6},
		},
		"many IPv6 ports": {changes(8, numberedPort6), many, []Selection{udp6}},
		"both families": {
			append(changes(8, numberedPort), change("[fd96::1]:53")), many,
			[]Selection{udp4, port6},
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
			t.Errorf("%d entries: got %d dumps, want %d", entries, got, want)
		}
	}
}

// to returns the filter for an IPv4 VIP.
func to(vip string) Selection {
	dst := addrPort(vip)
	return Selection{Family: IPv4, Protocol: udp, Addr: dst.Addr(), Port: dst.Port()}
}

// sevenPorts returns the filters for numberedPort(0) to numberedPort(6).
func sevenPorts() (filters []Selection) {
	for i := range 7 {
		filters = append(filters, to(numberedPort(i).String()))
	}
	return filters
}

// Each plan lists all flows to the changed frontends.
func TestPlanIncludesAllFrontends(t *testing.T) {
	for n := range 20 {
		for _, frontend := range []func(int) netip.AddrPort{numberedVIP, numberedPort, numberedPort6} {
			filters := plan(toCheck(changes(n, frontend)), 500_000)
			for i := range n {
				dst := frontend(i)
				flow := newFlow(udp, dst.String(), dst.String(), dst.String())
				if !slices.ContainsFunc(filters, func(f Selection) bool { return f.matches(flow) }) {
					t.Errorf("%d frontends: got %v, want a dump of flows to %v", n, filters, dst)
				}
			}
		}
	}
}
