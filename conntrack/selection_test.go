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
	filter Selection
	exact  bool
}

func filterCases() map[string]filterCase {
	const icmp, bridge = unix.IPPROTO_ICMP, unix.NFPROTO_BRIDGE
	vip, vip6, ep := addr("10.96.0.10"), addr("fd96::10"), addr("10.244.0.5")
	return map[string]filterCase{
		"no fields":        {Selection{}, true},
		"family":           {Selection{Family: IPv6}, true},
		"protocol alone":   {Selection{Protocol: udp}, false},
		"protocol":         {Selection{Family: IPv4, Protocol: udp}, true},
		"IPv6 protocol":    {Selection{Family: IPv6, Protocol: udp}, true},
		"destination":      {Selection{Family: IPv4, Protocol: udp, Addr: vip, Port: 53}, true},
		"address alone":    {Selection{Family: IPv4, Addr: vip}, true},
		"port alone":       {Selection{Family: IPv4, Port: 53}, false},
		"port":             {Selection{Family: IPv4, Protocol: udp, Port: 53}, true},
		"IPv6 port":        {Selection{Family: IPv6, Protocol: udp, Port: 53}, true},
		"IPv6 destination": {Selection{Family: IPv6, Protocol: udp, Addr: vip6, Port: 53}, false},
		"IPv6 address":     {Selection{Family: IPv6, Addr: vip6}, false},
		"other family":     {Selection{Family: IPv6, Addr: vip}, false},
		"unknown family":   {Selection{Family: bridge, Protocol: udp}, false},
		"ICMP with a port": {Selection{Family: IPv4, Protocol: icmp, Port: 53}, false},
		"no match":         {Selection{Family: IPv4, Protocol: udp, Addr: addr("10.96.0.99")}, true},
		"endpoint":         {Selection{Family: IPv4, Protocol: udp, Addr: ep, Port: 53, replies: true}, true},
		"endpoints":        {Selection{Family: IPv6, Protocol: tcp, Port: 53, replies: true}, true},
		"lost":             {Selection{Family: IPv4, Protocol: tcp, lost: true}, false},
		"unused protocol":  {Selection{Family: IPv4, Protocol: 200}, true},
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
				flow.id, flow.status = 0, 0
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
