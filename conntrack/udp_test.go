package conntrack

import (
	"context"
	"fmt"
	"net/netip"
	"testing"
	"time"
)

// inLabs runs a test for both families, each with flows in the default zone
// and with flows in another zone.
func inLabs(t *testing.T, test func(t *testing.T, l *lab)) {
	for _, family := range []Family{IPv4, IPv6} {
		for _, zone := range []uint16{0, 7} {
			t.Run(fmt.Sprintf("%v/zone %d", family, zone), func(t *testing.T) {
				test(t, newLab(t, family, zone))
			})
		}
	}
}

func (l *lab) clean(t *testing.T, want int, changes ...FrontendChange) {
	t.Helper()
	stats, err := cleanChanges(context.Background(), l.conn, changes...)
	if err != nil || stats.Deleted != want {
		t.Errorf("got %+v, %v, want %d deleted flows", stats, err, want)
	}
}

// await waits for the flow of a datagram without a reply, and returns it.
func (l *lab) await(t *testing.T, client netip.AddrPort) trackedFlow {
	t.Helper()
	for range 1000 {
		for _, flow := range findAll(t, l.conn, client) {
			return flow
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("got no flow from %v within 10 s", client)
	return trackedFlow{}
}

func wantReply(t *testing.T, client udpClient, to, want netip.AddrPort) {
	t.Helper()
	if got := client.ask(to); got != want {
		t.Errorf("client %v: got a reply from %v, want %v", client.addr, got, want)
	}
}

// Two clients keep their source ports. The endpoint of the first client is
// removed, and another endpoint serves the client. The endpoint of the second
// client stays, and so does its flow, although the rules send new clients
// elsewhere.
func TestEndpointRemoved(t *testing.T) {
	inLabs(t, func(t *testing.T, l *lab) {
		vip := netip.AddrPortFrom(l.vip, 53)
		removed, kept, added := l.endpoints[0], l.endpoints[1], l.endpoints[2]
		first, second := l.newClient(t, 40001), l.newClient(t, 40002)

		l.translate(t, rule{vip, removed})
		wantReply(t, first, vip, removed)
		l.translate(t, rule{vip, kept})
		wantReply(t, second, vip, kept)
		l.translate(t, rule{vip, added})
		wantReply(t, first, vip, removed) // rules alone do not change a flow
		before := find(t, l.conn, second.addr)
		if before.zone.id != l.zoneID {
			t.Errorf("got a flow in zone %d, want %d", before.zone.id, l.zoneID)
		}

		l.clean(t, 1, FrontendChange{Frontend: vip, Endpoints: []netip.AddrPort{kept, added}})
		wantReply(t, first, vip, added)
		wantReply(t, second, vip, kept)
		if after := find(t, l.conn, second.addr); after.id != before.id || after.original != before.original {
			t.Errorf("got replacement %v, want the same flow %v", after, before)
		}
	})
}

// A client sends before the service has an endpoint. Its flow is not
// translated until it is deleted.
func TestFirstEndpoint(t *testing.T) {
	inLabs(t, func(t *testing.T, l *lab) {
		vip := netip.AddrPortFrom(l.vip, 53)
		client := l.newClient(t, 40001)
		client.send(vip)
		if flow := l.await(t, client.addr); flow.translated() {
			t.Fatalf("got %v, want no translation without a rule", flow)
		}
		l.translate(t, rule{vip, l.endpoints[0]})
		client.send(vip)
		if flow := find(t, l.conn, client.addr); flow.translated() {
			t.Fatalf("got %v, want no translation of a known flow", flow)
		}
		l.clean(t, 1, FrontendChange{Frontend: vip, Endpoints: l.endpoints[:1]})
		wantReply(t, client, vip, l.endpoints[0])
	})
}

// When the last endpoint is removed, neither old nor new flows lead to it.
func TestLastEndpoint(t *testing.T) {
	inLabs(t, func(t *testing.T, l *lab) {
		vip := netip.AddrPortFrom(l.vip, 53)
		client := l.newClient(t, 40001)
		l.translate(t, rule{vip, l.endpoints[0]})
		wantReply(t, client, vip, l.endpoints[0])
		l.translate(t)
		l.clean(t, 1, FrontendChange{Frontend: vip})
		client.send(vip)
		if flow := l.await(t, client.addr); flow.translated() {
			t.Errorf("got %v, want no translation", flow)
		}
	})
}

// A pass for a NodePort on all local addresses keeps flows to other hosts,
// and to VIPs, with the same port number.
func TestNodePort(t *testing.T) {
	inLabs(t, func(t *testing.T, l *lab) {
		nodePort := netip.AddrPortFrom(l.routerAddr, 30053)
		second := netip.AddrPortFrom(l.addr(2, 1), 30053)
		vip := netip.AddrPortFrom(l.vip, 30053)
		host := netip.AddrPortFrom(l.endpoints[0].Addr(), 30053)
		local := netip.AddrPortFrom(netip.Addr{}, 30053)
		before, after := l.endpoints[0], l.endpoints[1]
		clients := [4]udpClient{}
		for i := range clients {
			clients[i] = l.newClient(t, uint16(40001+i))
		}

		l.translate(t, rule{vip, before}, rule{local, before})
		wantReply(t, clients[0], nodePort, before)
		wantReply(t, clients[1], second, before)
		wantReply(t, clients[2], vip, before)
		wantReply(t, clients[3], host, host)
		kept := []trackedFlow{find(t, l.conn, clients[2].addr), find(t, l.conn, clients[3].addr)}

		l.translate(t, rule{vip, before}, rule{local, after})
		frontend := netip.AddrPortFrom(l.family.Unspecified(), 30053)
		l.clean(t, 2, FrontendChange{Frontend: frontend, Endpoints: []netip.AddrPort{after}})
		wantReply(t, clients[0], nodePort, after)
		wantReply(t, clients[1], second, after)
		for _, flow := range kept {
			if got := find(t, l.conn, flow.original.src); got.id != flow.id {
				t.Errorf("got replacement %v, want the same flow %v", got, flow)
			}
		}
	})
}
