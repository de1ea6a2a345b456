package conntrack

import (
	"net/netip"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

const (
	udp = unix.IPPROTO_UDP
	tcp = unix.IPPROTO_TCP
)

// filterFlows returns flows that differ in each field that filters use.
func filterFlows() []Flow {
	marked := newFlow(udp, "10.0.0.4:4000", "10.96.0.10:53", "10.244.0.5:53")
	marked.Mark = 0x4001
	unreplied := newFlow(udp, "10.0.0.5:4000", "10.96.0.10:53", "10.244.0.5:53")
	unreplied.Status = 1 << 3
	return []Flow{
		newFlow(udp, "10.0.0.1:4000", "10.96.0.10:53", "10.244.0.5:53"),
		newFlow(udp, "10.0.0.1:4001", "10.96.0.11:53", "10.244.0.5:53"),
		newFlow(udp, "10.0.0.1:4002", "10.96.0.10:54", "10.244.0.6:53"),
		newFlow(tcp, "10.0.0.1:4000", "10.96.0.10:53", "10.244.0.5:53"),
		newFlow(udp, "10.0.0.2:4000", "10.96.0.10:53", "10.244.0.5:53").inZone(7, ZoneBoth),
		newFlow(udp, "10.0.0.2:4000", "10.96.0.10:53", "10.244.0.6:53").inZone(8, ZoneOriginal),
		newFlow(udp, "10.0.0.3:4000", "10.96.0.10:53", "10.244.0.5:53").inZone(9, ZoneReply),
		marked,
		unreplied,
		newFlow(udp, "[fd00::1]:4000", "[fd96::10]:53", "[fd24::5]:53"),
		newFlow(udp, "[fd00::1]:4001", "[fd96::11]:53", "[fd24::5]:53"),
		newFlow(udp, "[fd00::1]:4002", "[fd96::10]:54", "[fd24::6]:53"),
		newFlow(tcp, "[fd00::1]:4000", "[fd96::10]:53", "[fd24::5]:53"),
		newFlow(udp, "[fd00::2]:4000", "[fd96::10]:53", "[fd24::5]:53").inZone(7, ZoneBoth),
	}
}

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }

// filterCases returns filters. Exact reports whether each kernel from 5.10 on
// sends only the flows that match.
func filterCases() map[string]struct {
	filter Filter
	exact  bool
} {
	return map[string]struct {
		filter Filter
		exact  bool
	}{
		"everything":        {Filter{}, true},
		"family":            {Filter{Family: IPv6}, true},
		"protocol alone":    {Filter{Protocol: udp}, false},
		"protocol":          {Filter{Family: IPv4, Protocol: udp}, true},
		"IPv6 protocol":     {Filter{Family: IPv6, Protocol: udp}, true},
		"destination":       {Filter{Family: IPv4, Protocol: udp, Original: TupleFilter{Dst: addr("10.96.0.10"), DstPort: 53}}, true},
		"address alone":     {Filter{Family: IPv4, Original: TupleFilter{Dst: addr("10.96.0.10")}}, true},
		"port alone":        {Filter{Family: IPv4, Original: TupleFilter{DstPort: 53}}, false},
		"port":              {Filter{Family: IPv4, Protocol: udp, Original: TupleFilter{DstPort: 53}}, true},
		"IPv6 port":         {Filter{Family: IPv6, Protocol: udp, Original: TupleFilter{DstPort: 53}}, true},
		"IPv6 destination":  {Filter{Family: IPv6, Protocol: udp, Original: TupleFilter{Dst: addr("fd96::10"), DstPort: 53}}, false},
		"IPv6 address":      {Filter{Family: IPv6, Original: TupleFilter{Dst: addr("fd96::10")}}, false},
		"client":            {Filter{Family: IPv4, Protocol: udp, Original: TupleFilter{Src: addr("10.0.0.1"), SrcPort: 4000}}, true},
		"endpoint":          {Filter{Family: IPv4, Protocol: udp, Reply: TupleFilter{Src: addr("10.244.0.6"), SrcPort: 53}}, true},
		"endpoint address":  {Filter{Family: IPv4, Reply: TupleFilter{Src: addr("10.244.0.6")}}, true},
		"IPv6 endpoint":     {Filter{Family: IPv6, Protocol: udp, Reply: TupleFilter{Src: addr("fd24::6"), SrcPort: 53}}, false},
		"answers":           {Filter{Family: IPv4, Protocol: udp, Reply: TupleFilter{Dst: addr("10.0.0.1"), DstPort: 4001}}, true},
		"both tuples":       {Filter{Family: IPv4, Protocol: udp, Original: TupleFilter{DstPort: 54}, Reply: TupleFilter{Src: addr("10.244.0.6")}}, true},
		"mark":              {Filter{Mark: 0x4000, MarkMask: 0x4000}, true},
		"no mark":           {Filter{Family: IPv4, Mark: 0, MarkMask: 0x4000}, true},
		"status":            {Filter{Family: IPv4, Status: 1 << 2, StatusMask: 1 << 2}, false},
		"no status":         {Filter{Family: IPv4, Status: 0, StatusMask: 1 << 2}, false},
		"zone":              {Filter{InZone: true, Zone: 7}, false},
		"original zone":     {Filter{InZone: true, Zone: 8}, false},
		"reply zone":        {Filter{InZone: true, Zone: 9}, false},
		"default zone":      {Filter{InZone: true, Zone: 0, Family: IPv4}, false},
		"other family":      {Filter{Family: IPv6, Original: TupleFilter{Dst: addr("10.96.0.10")}}, false},
		"unknown family":    {Filter{Family: unix.NFPROTO_BRIDGE, Protocol: udp}, false},
		"ICMP with a port":  {Filter{Family: IPv4, Protocol: unix.IPPROTO_ICMP, Original: TupleFilter{DstPort: 53}}, false},
		"nothing matches":   {Filter{Family: IPv4, Protocol: udp, Original: TupleFilter{Dst: addr("10.96.0.99")}}, true},
		"protocol unlisted": {Filter{Family: IPv4, Protocol: 200}, true},
	}
}

// Flows yields the same flows, whichever filters the kernel applies.
func TestFlowsFilter(t *testing.T) {
	ns := newNamespace(t)
	flows := filterFlows()
	ns.injector(t).add(t, flows...)
	c := ns.open(t)
	for name, tc := range filterCases() {
		t.Run(name, func(t *testing.T) {
			var want []Flow
			for _, flow := range flows {
				if tc.filter.Match(flow) {
					want = append(want, flow)
				}
			}
			before := c.received
			var got []Flow
			for flow, err := range c.Flows(tc.filter) {
				if err != nil {
					t.Fatal(err)
				}
				flow.ID = 0
				got = append(got, flow)
			}
			if !sameFlows(got, want) {
				t.Errorf("got %v\nwant %v", got, want)
			}
			received := c.received - before
			if tc.exact && received != len(want) {
				t.Errorf("the kernel sent %d flows for %d", received, len(want))
			}
			t.Logf("Linux %s sent %d flows for %d", kernelRelease(), received, len(want))
		})
	}
}

func sameFlows(a, b []Flow) bool {
	order := func(x, y Flow) int {
		return slices.Compare(appendFlow(nil, x), appendFlow(nil, y))
	}
	return slices.Equal(slices.SortedFunc(slices.Values(a), order), slices.SortedFunc(slices.Values(b), order))
}
