package conntrack

import (
	"iter"
	"net/netip"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

const (
	udp = unix.IPPROTO_UDP
	tcp = unix.IPPROTO_TCP
)

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }

func addrPort(s string) netip.AddrPort { return netip.MustParseAddrPort(s) }

// numbered returns the IPv4 address PREFIX.X.X.X that ends with a number.
func numbered(prefix byte, n int) netip.Addr {
	return netip.AddrFrom4([4]byte{prefix, byte(n >> 16), byte(n >> 8), byte(n)})
}

// newFlow returns a flow that was translated to endpoint.
func newFlow(protocol uint8, client, frontend, endpoint string) trackedFlow {
	src, dst := addrPort(client), addrPort(frontend)
	return trackedFlow{
		protocol: protocol,
		original: tuple{src: src, dst: dst},
		reply:    tuple{src: addrPort(endpoint), dst: src},
	}
}

func (f trackedFlow) inZone(id uint16, direction zoneDirection) trackedFlow {
	f.zone = zone{id, direction}
	return f
}

func (f trackedFlow) fromClient(client netip.AddrPort) trackedFlow {
	f.original.src, f.reply.dst = client, client
	return f
}

// manyFlows returns flows of different clients to one VIP and endpoint.
func manyFlows(n int) []trackedFlow {
	flow := newFlow(udp, "10.0.0.0:0", "10.96.0.10:53", "10.244.0.5:53")
	flows := make([]trackedFlow, n)
	for i := range flows {
		flows[i] = flow.fromClient(netip.AddrPortFrom(numbered(11, i), 4000))
	}
	return flows
}

// mustYield returns the flows of a dump, and fails the test at its first
// error.
func mustYield(t testing.TB, flows iter.Seq2[trackedFlow, error]) iter.Seq[trackedFlow] {
	t.Helper()
	return func(yield func(trackedFlow) bool) {
		for flow, err := range flows {
			if err != nil {
				t.Fatal(err)
			}
			if !yield(flow) {
				return
			}
		}
	}
}

// list returns all flows of the table without their IDs and status, which
// are not predictable.
func list(t testing.TB, c *Conn) []trackedFlow {
	t.Helper()
	var flows []trackedFlow
	for flow := range mustYield(t, c.listFlows(Selection{})) {
		flow.id, flow.status = 0, 0
		flows = append(flows, flow)
	}
	return flows
}

// wantFlows compares the flows of the table.
func wantFlows(t testing.TB, c *Conn, want []trackedFlow) {
	t.Helper()
	if got := list(t, c); !sameFlows(got, want) {
		t.Errorf("got %d flows %v\nwant %d %v", len(got), got, len(want), want)
	}
}

func sameFlows(a, b []trackedFlow) bool {
	order := func(x, y trackedFlow) int {
		return slices.Compare(flowPayload(x), flowPayload(y))
	}
	return slices.Equal(slices.SortedFunc(slices.Values(a), order), slices.SortedFunc(slices.Values(b), order))
}

// find returns the one flow from a client, with its ID.
func find(t testing.TB, c *Conn, client netip.AddrPort) trackedFlow {
	t.Helper()
	found := findAll(t, c, client)
	if len(found) != 1 {
		t.Fatalf("got %d flows from %v, want 1: %v", len(found), client, found)
	}
	return found[0]
}

func findAll(t testing.TB, c *Conn, client netip.AddrPort) (found []trackedFlow) {
	t.Helper()
	for flow := range mustYield(t, c.listFlows(Selection{})) {
		if flow.original.src == client {
			found = append(found, flow)
		}
	}
	return found
}
