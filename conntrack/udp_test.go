package conntrack

import (
	"context"
	"fmt"
	"net/netip"
	"testing"
	"time"
)

// inLabs runs a test for both families, each with flows in the default zone and
// with flows in another zone.
func inLabs(t *testing.T, test func(t *testing.T, l *lab)) {
	for _, family := range []Family{IPv4, IPv6} {
		for _, zone := range []uint16{0, 7} {
			t.Run(fmt.Sprintf("%v/zone %d", family, zone), func(t *testing.T) {
				test(t, newLab(t, family, zone))
			})
		}
	}
}

func (l *lab) clean(t *testing.T, want int, changes ...Change) {
	t.Helper()
	stats, err := cleanChanges(context.Background(), l.conn, changes...)
	if err != nil || stats.Deleted != want {
		t.Errorf("%+v, %v, want %d deleted", stats, err, want)
	}
}

// await waits for the flow of a datagram without an answer, and returns it.
func (l *lab) await(t *testing.T, client netip.AddrPort) Flow {
	t.Helper()
	filter := Filter{Original: TupleFilter{Src: client.Addr(), SrcPort: client.Port()}}
	for range 1000 {
		for flow, err := range l.conn.Flows(filter) {
			if err != nil {
				t.Fatal(err)
			}
			return flow
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("no flow from %v", client)
	return Flow{}
}

func wantAnswer(t *testing.T, client udpClient, to, want netip.AddrPort) {
	t.Helper()
	if got := client.ask(to); got != want {
		t.Errorf("the client at %v: %v answered, want %v", client.addr, got, want)
	}
}

// Two clients keep their source ports. The endpoint of the first client is
// removed, and another endpoint serves the client. The endpoint of the second
// client stays, and so does its flow, although the rules send new clients
// elsewhere.
func TestClientSwitchesOver(t *testing.T) {
	inLabs(t, func(t *testing.T, l *lab) {
		vip := netip.AddrPortFrom(l.vip, 53)
		goes, stays, comes := l.endpoints[0], l.endpoints[1], l.endpoints[2]
		first, second := l.newClient(t, 40001), l.newClient(t, 40002)

		l.translate(t, rule{vip, goes})
		wantAnswer(t, first, vip, goes)
		l.translate(t, rule{vip, stays})
		wantAnswer(t, second, vip, stays)
		l.translate(t, rule{vip, comes})
		wantAnswer(t, first, vip, goes) // rules alone do not change a flow
		before := find(t, l.conn, second.addr)
		if before.Zone.ID != l.zone {
			t.Errorf("the flow is in zone %d", before.Zone.ID)
		}

		l.clean(t, 1, Change{Frontend: vip, Endpoints: []netip.AddrPort{stays, comes}})
		wantAnswer(t, first, vip, comes)
		wantAnswer(t, second, vip, stays)
		if after := find(t, l.conn, second.addr); after.ID != before.ID || after.Original != before.Original {
			t.Errorf("the flow to the serving endpoint was replaced: %v, %v", before, after)
		}
	})
}

// A client sends before the service has an endpoint. Its flow is not translated
// until it is deleted.
func TestFirstEndpoint(t *testing.T) {
	inLabs(t, func(t *testing.T, l *lab) {
		vip := netip.AddrPortFrom(l.vip, 53)
		client := l.newClient(t, 40001)
		client.send(vip)
		if flow := l.await(t, client.addr); flow.DNATed() {
			t.Fatalf("translated without a rule: %v", flow)
		}
		l.translate(t, rule{vip, l.endpoints[0]})
		client.send(vip)
		if flow := find(t, l.conn, client.addr); flow.DNATed() {
			t.Fatalf("translated though it was known: %v", flow)
		}
		l.clean(t, 1, Change{Frontend: vip, Endpoints: l.endpoints[:1]})
		wantAnswer(t, client, vip, l.endpoints[0])
	})
}

// When the last endpoint is removed, neither old nor new flows lead to it.
func TestLastEndpoint(t *testing.T) {
	inLabs(t, func(t *testing.T, l *lab) {
		vip := netip.AddrPortFrom(l.vip, 53)
		client := l.newClient(t, 40001)
		l.translate(t, rule{vip, l.endpoints[0]})
		wantAnswer(t, client, vip, l.endpoints[0])
		l.translate(t)
		l.clean(t, 1, Change{Frontend: vip})
		client.send(vip)
		if flow := l.await(t, client.addr); flow.DNATed() {
			t.Errorf("the client is still translated: %v", flow)
		}
	})
}

// A pass for a NodePort on all local addresses keeps flows to other hosts, and
// to VIPs, with the same port number.
func TestNodePort(t *testing.T) {
	inLabs(t, func(t *testing.T, l *lab) {
		nodePort := netip.AddrPortFrom(l.routerAddr, 30053)
		second := netip.AddrPortFrom(l.addr(2, 1), 30053)
		vip := netip.AddrPortFrom(l.vip, 30053)
		host := netip.AddrPortFrom(l.endpoints[0].Addr(), 30053)
		local := netip.AddrPortFrom(netip.Addr{}, 30053)
		old, successor := l.endpoints[0], l.endpoints[1]
		clients := [4]udpClient{}
		for i := range clients {
			clients[i] = l.newClient(t, uint16(40001+i))
		}

		l.translate(t, rule{vip, old}, rule{local, old})
		wantAnswer(t, clients[0], nodePort, old)
		wantAnswer(t, clients[1], second, old)
		wantAnswer(t, clients[2], vip, old)
		wantAnswer(t, clients[3], host, host)
		stay := []Flow{find(t, l.conn, clients[2].addr), find(t, l.conn, clients[3].addr)}

		l.translate(t, rule{vip, old}, rule{local, successor})
		any := netip.IPv4Unspecified()
		if l.family == IPv6 {
			any = netip.IPv6Unspecified()
		}
		l.clean(t, 2, Change{Frontend: netip.AddrPortFrom(any, 30053), Endpoints: []netip.AddrPort{successor}})
		wantAnswer(t, clients[0], nodePort, successor)
		wantAnswer(t, clients[1], second, successor)
		for _, flow := range stay {
			if after := find(t, l.conn, flow.Original.Src); after.ID != flow.ID {
				t.Errorf("%v was replaced by %v", flow, after)
			}
		}
	})
}
