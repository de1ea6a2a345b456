package conntrack

import (
	"net/netip"
	"slices"
	"testing"
)

func addrPort(s string) netip.AddrPort { return netip.MustParseAddrPort(s) }

func change(frontend string, endpoints ...string) Change {
	c := Change{Frontend: addrPort(frontend)}
	for _, endpoint := range endpoints {
		c.Endpoints = append(c.Endpoints, addrPort(endpoint))
	}
	return c
}

func gone(frontend string) Change {
	return Change{Frontend: addrPort(frontend), Gone: true}
}

func TestStale(t *testing.T) {
	// Node addresses 192.0.2.1, 198.51.100.1 and fd01::1; 198.51.100.1:30053 is a VIP of another service.
	isNodeAddr := func(dst netip.AddrPort) bool {
		node := []netip.Addr{addr("192.0.2.1"), addr("198.51.100.1"), addr("fd01::1"), addr("127.0.0.1"), addr("::1")}
		return slices.Contains(node, dst.Addr()) && dst != addrPort("198.51.100.1:30053")
	}
	const client, vip, ep1, ep2 = "10.0.0.1:4000", "10.96.0.10:53", "10.244.0.5:53", "10.244.0.6:53"
	const nodePort, nodePortEp = "0.0.0.0:30053", "10.244.0.5:53"
	for name, tc := range map[string]struct {
		change Change
		flow   Flow
		want   bool
	}{
		"endpoint serves":               {change(vip, ep1, ep2), newFlow(udp, client, vip, ep1), false},
		"endpoint is gone":              {change(vip, ep2), newFlow(udp, client, vip, ep1), true},
		"same address, other port":      {change(vip, "10.244.0.5:54"), newFlow(udp, client, vip, ep1), true},
		"last endpoint is gone":         {change(vip), newFlow(udp, client, vip, ep1), true},
		"first endpoint":                {change(vip, ep1), newFlow(udp, client, vip, vip), true},
		"never translated, no endpoint": {change(vip), newFlow(udp, client, vip, vip), true},
		"the VIP is its own endpoint":   {change(vip, vip), newFlow(udp, client, vip, vip), false},
		"TCP":                           {change(vip, ep2), newFlow(tcp, client, vip, ep1), false},
		"another port":                  {change(vip, ep2), newFlow(udp, client, "10.96.0.10:54", ep1), false},
		"another VIP":                   {change(vip, ep2), newFlow(udp, client, "10.96.0.11:53", ep1), false},
		"from the VIP":                  {change(vip, ep2), newFlow(udp, vip, client, client), false},
		"to the endpoint itself":        {change(vip, ep2), newFlow(udp, client, ep1, ep1), false},
		"in another zone":               {change(vip, ep2), newFlow(udp, client, vip, ep1).inZone(7, ZoneBoth), true},
		"mapped addresses": {
			change("[::ffff:10.96.0.10]:53", "[::ffff:10.244.0.5]:53"), newFlow(udp, client, vip, ep1), false,
		},
		"mapped addresses, gone": {
			change("[::ffff:10.96.0.10]:53", "[::ffff:10.244.0.6]:53"), newFlow(udp, client, vip, ep1), true,
		},

		"frontend is gone":                   {gone(vip), newFlow(udp, client, vip, ep1), true},
		"frontend is gone, never translated": {gone(vip), newFlow(udp, client, vip, vip), false},
		"frontend is gone, TCP":              {gone(vip), newFlow(tcp, client, vip, ep1), false},

		"IPv6 endpoint serves": {
			change("[fd96::10]:53", "[fd24::5]:53"), newFlow(udp, "[fd00::1]:1", "[fd96::10]:53", "[fd24::5]:53"), false,
		},
		"IPv6 endpoint is gone": {
			change("[fd96::10]:53", "[fd24::6]:53"), newFlow(udp, "[fd00::1]:1", "[fd96::10]:53", "[fd24::5]:53"), true,
		},

		"NodePort, endpoint serves":     {change(nodePort, nodePortEp), newFlow(udp, client, "192.0.2.1:30053", ep1), false},
		"NodePort, endpoint is gone":    {change(nodePort, ep2), newFlow(udp, client, "192.0.2.1:30053", ep1), true},
		"NodePort, first endpoint":      {change(nodePort, ep1), newFlow(udp, client, "192.0.2.1:30053", "192.0.2.1:30053"), true},
		"NodePort, TCP":                 {change(nodePort, ep2), newFlow(tcp, client, "192.0.2.1:30053", ep1), false},
		"NodePort, another port":        {change(nodePort, ep2), newFlow(udp, client, "192.0.2.1:30054", ep1), false},
		"NodePort of another host":      {change(nodePort, ep1), newFlow(udp, client, "192.0.2.2:30053", "192.0.2.2:30053"), false},
		"NodePort, a VIP's port":        {change(nodePort, ep2), newFlow(udp, client, "10.96.0.11:30053", ep1), false},
		"NodePort, a VIP on the node":   {change(nodePort, ep2), newFlow(udp, client, "198.51.100.1:30053", ep1), false},
		"NodePort, loopback":            {change(nodePort, ep2), newFlow(udp, client, "127.0.0.1:30053", ep1), false},
		"NodePort, IPv6 loopback":       {change("[::]:30053"), newFlow(udp, "[::1]:1", "[::1]:30053", "[::1]:30053"), false},
		"NodePort, IPv6":                {change("[::]:30053"), newFlow(udp, "[fd00::1]:1", "[fd01::1]:30053", "[fd24::5]:53"), true},
		"NodePort of the other family":  {change("[::]:30053"), newFlow(udp, client, "192.0.2.1:30053", ep1), false},
		"NodePort is gone":              {gone(nodePort), newFlow(udp, client, "192.0.2.1:30053", ep1), true},
		"NodePort is gone, a host's":    {gone(nodePort), newFlow(udp, client, "192.0.2.1:30053", "192.0.2.1:30053"), false},
		"NodePort on a given address":   {change("192.0.2.2:30053", ep2), newFlow(udp, client, "192.0.2.2:30053", ep1), true},
		"NodePort on another address":   {change("192.0.2.2:30053", ep2), newFlow(udp, client, "192.0.2.1:30053", ep1), false},
		"frontend without port":         {change("10.96.0.10:0"), newFlow(udp, client, "10.96.0.10:0", ep1), false},
		"frontend without address":      {Change{}, newFlow(udp, client, "0.0.0.0:0", ep1), false},
		"unspecified address, port 0":   {change("0.0.0.0:0"), newFlow(udp, client, "192.0.2.1:0", ep1), false},
		"endpoint is the flow's client": {change(vip, client), newFlow(udp, client, vip, client), false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := newFrontends([]Change{tc.change}).stale(tc.flow, isNodeAddr); got != tc.want {
				t.Errorf("stale(%v) = %v", tc.flow, got)
			}
		})
	}
}

// A VIP among the changes goes before a NodePort with its port.
func TestStaleVIPBeforeNodePort(t *testing.T) {
	f := newFrontends([]Change{change("0.0.0.0:30053", "10.244.0.5:53"), change("192.0.2.1:30053", "10.244.0.6:53")})
	anywhere := func(netip.AddrPort) bool { return true }
	if f.stale(newFlow(udp, "10.0.0.1:1", "192.0.2.1:30053", "10.244.0.6:53"), anywhere) {
		t.Error("a flow to the VIP's endpoint is stale")
	}
	if !f.stale(newFlow(udp, "10.0.0.1:1", "192.0.2.1:30053", "10.244.0.5:53"), anywhere) {
		t.Error("a flow from the VIP to the NodePort's endpoint is not stale")
	}
}
