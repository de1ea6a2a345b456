package conntrack

import (
	"testing"

	"golang.org/x/sys/unix"
)

// filterFlows returns flows that differ in each field that filters use.
func filterFlows() []trackedFlow {
	return []trackedFlow{
		newFlow(udp, "10.0.0.1:4000", "10.96.0.10:53", "10.244.0.5:53"),
		newFlow(udp, "10.0.0.1:4001", "10.96.0.11:53", "10.244.0.5:53"),
		newFlow(udp, "10.0.0.1:4002", "10.96.0.10:54", "10.244.0.6:53"),
		newFlow(tcp, "10.0.0.1:4000", "10.96.0.10:53", "10.244.0.5:53"),
		newFlow(udp, "10.0.0.2:4000", "10.96.0.10:53", "10.244.0.5:53").inZone(7, zoneBoth),
		newFlow(udp, "10.0.0.2:4000", "10.96.0.10:53", "10.244.0.6:53").inZone(8, zoneOriginal),
		newFlow(udp, "10.0.0.3:4000", "10.96.0.10:53", "10.244.0.5:53").inZone(9, zoneReply),
		newFlow(udp, "[fd00::1]:4000", "[fd96::10]:53", "[fd24::5]:53"),
		newFlow(udp, "[fd00::1]:4001", "[fd96::11]:53", "[fd24::5]:53"),
		newFlow(udp, "[fd00::1]:4002", "[fd96::10]:54", "[fd24::6]:53"),
		newFlow(tcp, "[fd00::1]:4000", "[fd96::10]:53", "[fd24::5]:53"),
		newFlow(udp, "[fd00::2]:4000", "[fd96::10]:53", "[fd24::5]:53").inZone(7, zoneBoth),
	}
}

// filterCase has a filter. exact reports whether each kernel from 5.10 on
// sends only the flows that match.
type filterCase struct {
	filter dumpFilter
	exact  bool
}

func filterCases() map[string]filterCase {
	const icmp, bridge = unix.IPPROTO_ICMP, unix.NFPROTO_BRIDGE
	vip, vip6 := addr("10.96.0.10"), addr("fd96::10")
	return map[string]filterCase{
		"no fields":        {dumpFilter{}, true},
		"family":           {dumpFilter{family: IPv6}, true},
		"protocol alone":   {dumpFilter{protocol: udp}, false},
		"protocol":         {dumpFilter{family: IPv4, protocol: udp}, true},
		"IPv6 protocol":    {dumpFilter{family: IPv6, protocol: udp}, true},
		"destination":      {dumpFilter{family: IPv4, protocol: udp, dst: vip, dstPort: 53}, true},
		"address alone":    {dumpFilter{family: IPv4, dst: vip}, true},
		"port alone":       {dumpFilter{family: IPv4, dstPort: 53}, false},
		"port":             {dumpFilter{family: IPv4, protocol: udp, dstPort: 53}, true},
		"IPv6 port":        {dumpFilter{family: IPv6, protocol: udp, dstPort: 53}, true},
		"IPv6 destination": {dumpFilter{family: IPv6, protocol: udp, dst: vip6, dstPort: 53}, false},
		"IPv6 address":     {dumpFilter{family: IPv6, dst: vip6}, false},
		"other family":     {dumpFilter{family: IPv6, dst: vip}, false},
		"unknown family":   {dumpFilter{family: bridge, protocol: udp}, false},
		"ICMP with a port": {dumpFilter{family: IPv4, protocol: icmp, dstPort: 53}, false},
		"no match":         {dumpFilter{family: IPv4, protocol: udp, dst: addr("10.96.0.99")}, true},
		"lost":             {dumpFilter{family: IPv4, protocol: tcp, lost: true}, false},
		"unused protocol":  {dumpFilter{family: IPv4, protocol: 200}, true},
	}
}

// listFlows yields the matching flows, whichever filters the kernel applies.
func TestListFlowsFilters(t *testing.T) {
	ns := newNamespace(t)
	flows := filterFlows()
	ns.injector(t).add(t, flows...)
	c := ns.open(t)
	for name, tc := range filterCases() {
		t.Run(name, func(t *testing.T) {
			var want []trackedFlow
			for _, flow := range flows {
				if tc.filter.matches(flow) {
					want = append(want, flow)
				}
			}
			before := c.received
			var got []trackedFlow
			for flow := range mustYield(t, c.listFlows(tc.filter)) {
				flow.id = 0
				got = append(got, flow)
			}
			if !sameFlows(got, want) {
				t.Errorf("got %v\nwant %v", got, want)
			}
			received := c.received - before
			if tc.exact && received != len(want) {
				t.Errorf("got %d flows from the kernel, want %d", received, len(want))
			}
			t.Logf("Linux %s sent %d flows, %d match", kernelRelease(), received, len(want))
		})
	}
}
