package notify_test

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/nft/notify"
	"github.com/nftproxy/nftproxy/test/lab/nstest"
	"github.com/nftproxy/nftproxy/test/must"
)

const (
	tcp = uint8(unix.IPPROTO_TCP)
	udp = uint8(unix.IPPROTO_UDP)
)

// traceChains are chains that trace UDP packets of this host. Packets to port 9
// are dropped.
func traceChains(f nft.Family, doomed *nft.Set) []*nft.Chain {
	rule := nft.NewRule
	return []*nft.Chain{
		{Name: "mark", Rules: []nft.Rule{rule(nft.MatchL4Proto(tcp), nft.Drop()), rule(nft.SetMarkBits(0x40))}},
		{Name: "refuse", Rules: []nft.Rule{rule(nft.Reject(f))}},
		{
			Name: "output", Hook: &nft.Hook{Type: nft.ChainTypeFilter, Point: nft.Output},
			Rules: []nft.Rule{
				rule(nft.MatchL4Proto(udp), nft.SetTrace()),
				rule(nft.Jump("mark")),
				rule(nft.In(doomed, nft.L4Proto(), nft.ThDport()), nft.Goto("refuse")),
			},
		},
		{Name: "postrouting", Hook: &nft.Hook{Type: nft.ChainTypeFilter, Point: nft.Postrouting}},
	}
}

// A Tracer receives the steps of each packet: rules with their verdicts, and
// policies.
func TestTracer(t *testing.T) {
	for _, f := range []nft.Family{nft.IPv4, nft.IPv6} {
		t.Run(f.String(), func(t *testing.T) {
			nstest.New(t).Do(func() { testTracer(t, f, nstest.Open(t)) })
		})
	}
}

func testTracer(t *testing.T, f nft.Family, c *nft.Conn) {
	doomed := &nft.Set{Name: "doomed", Key: nft.Types(nft.TypeInetProto, nft.TypeInetService)}
	table := &nft.Table{Family: f, Name: "t", Sets: []*nft.Set{doomed}, Chains: traceChains(f, doomed)}
	nstest.Commit(t, c, table, nft.Row{Set: doomed, Key: nft.Tuple{}.Proto(udp).Port(9)})
	tracer := openTracer(t)

	to := netip.AddrPortFrom(loopback(f), 10)
	from := sendUDP(t, to)
	accepted := []string{
		"rule output 0: continue", "rule output 1: jump mark", "rule mark 1: continue",
		"policy output: accept", "policy postrouting: accept",
	}
	expectTrace(t, c, table, tracer, from, to, accepted)

	to = netip.AddrPortFrom(to.Addr(), 9)
	from = sendUDP(t, to)
	refused := append(slices.Clone(accepted[:3]), "rule output 2: goto refuse", "rule refuse 0: drop")
	expectTrace(t, c, table, tracer, from, to, refused)

	if lost, err := tracer.Lost(); err != nil || lost != 0 {
		t.Errorf("lost: got %d, %v, want 0", lost, err)
	}
}

// Messages that do not fit into the receive buffer are counted.
func TestTracerLost(t *testing.T) { nstest.New(t).Do(func() { testTracerLost(t, nstest.Open(t)) }) }

func testTracerLost(t *testing.T, c *nft.Conn) {
	doomed := &nft.Set{Name: "doomed", Key: nft.Types(nft.TypeInetProto, nft.TypeInetService)}
	nstest.Commit(t, c, &nft.Table{
		Family: nft.IPv4, Name: "t", Sets: []*nft.Set{doomed}, Chains: traceChains(nft.IPv4, doomed),
	})
	tracer := openTracer(t)
	tracer.LimitBuffer(t, 4096)
	for range 100 {
		sendUDP(t, netip.MustParseAddrPort("127.0.0.1:10"))
	}
	if lost, err := tracer.Lost(); err != nil || lost < 100 {
		t.Errorf("lost: got %d, %v, want more than 100", lost, err)
	}
	if events := receive(t, tracer); len(events) == 0 {
		t.Error("got no events after the loss")
	}
}

func openTracer(t *testing.T) *notify.Tracer {
	t.Helper()
	tracer, err := notify.OpenTracer()
	must.NoError(t, err)
	t.Cleanup(func() { tracer.Close() })
	return tracer
}

// expectTrace compares the events of the packet that was sent last. The first
// event of each base chain has the packet.
func expectTrace(
	t *testing.T, c *nft.Conn, table *nft.Table, tracer *notify.Tracer, from, to netip.AddrPort, want []string,
) {
	t.Helper()
	var got []string
	var packets []notify.TracedPacket
	events := receive(t, tracer)
	for _, e := range events {
		if e.ID != events[0].ID || e.Type == notify.TraceReturn { // another ID is the packet when it arrives on lo
			continue
		}
		if e.Table != table.Name || e.Family != table.Family {
			t.Errorf("got event %+v, want %v", e, table)
		}
		got = append(got, eventText(t, c, table, e))
		if e.Packet != nil {
			packets = append(packets, *e.Packet)
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("got events %q\nwant %q", got, want)
	}
	for _, p := range packets {
		if wanted := (notify.TracedPacket{Protocol: udp, Source: from, Destination: to, Out: 1}); p != wanted {
			t.Errorf("got packet %v, want %v", p, wanted)
		}
	}
	if len(packets) == 0 {
		t.Error("got no packet")
	}
}

// eventText returns an event with the number of its rule in the chain.
func eventText(t *testing.T, c *nft.Conn, table *nft.Table, e notify.TraceEvent) string {
	t.Helper()
	if e.Type == notify.TracePolicy {
		return fmt.Sprintf("policy %s: %s", e.Chain, e.Verdict)
	}
	ids, err := c.RuleIDs(table, e.Chain)
	must.NoError(t, err)
	at := slices.IndexFunc(ids, func(id nft.RuleID) bool { return id.Handle == e.Rule })
	return fmt.Sprintf("rule %s %d: %s", e.Chain, at, e.Verdict)
}

// receive returns the pending events.
func receive(t *testing.T, tracer *notify.Tracer) (all []notify.TraceEvent) {
	t.Helper()
	for {
		events, err := tracer.Receive(100 * time.Millisecond)
		must.NoError(t, err)
		if len(events) == 0 {
			return all
		}
		all = append(all, events...)
	}
}

func loopback(f nft.Family) netip.Addr {
	if f == nft.IPv4 {
		return netip.MustParseAddr("127.0.0.1")
	}
	return netip.IPv6Loopback()
}

// sendUDP sends a packet and returns its source. Rules may refuse it.
func sendUDP(t *testing.T, to netip.AddrPort) (from netip.AddrPort) {
	t.Helper()
	conn, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(to))
	must.NoError(t, err)
	defer conn.Close()
	if _, err := conn.Write([]byte("packet")); err != nil && !errors.Is(err, unix.EPERM) {
		t.Fatal(err)
	}
	return netip.MustParseAddrPort(conn.LocalAddr().String())
}
