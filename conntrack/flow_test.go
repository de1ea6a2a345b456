package conntrack

import (
	"iter"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/nft/nfnetlink"
)

const (
	udp  = unix.IPPROTO_UDP
	tcp  = unix.IPPROTO_TCP
	sctp = unix.IPPROTO_SCTP

	// statusAssured is IPS_SEEN_REPLY, IPS_ASSURED and IPS_CONFIRMED.
	statusAssured = 1<<1 | 1<<2 | statusConfirmed
	// statusConfirmed is IPS_CONFIRMED.
	statusConfirmed = 1 << 3
)

var protocols = map[string]uint8{"udp": udp, "tcp": tcp, "sctp": sctp}

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }

func addrPort(s string) netip.AddrPort { return netip.MustParseAddrPort(s) }

func addrPorts(all ...string) (out []netip.AddrPort) {
	for _, s := range all {
		out = append(out, addrPort(s))
	}
	return out
}

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

// parseFlow returns the flow of a line:
//
//	tcp SYN_SENT 10.0.0.1:4000 -> 10.96.0.10:80 -> 10.244.0.5:8080 answered zone 7 # comment
//
// All but the addresses of the client and the frontend can be left out. A flow
// is answered unless its state is SYN_SENT or COOKIE_WAIT; "answered" and
// "unanswered" are exceptions. "original zone 7" and "reply zone 7" are zones
// of one direction.
func parseFlow(line string) trackedFlow {
	line, _, _ = strings.Cut(line, "#")
	words := strings.Fields(strings.ReplaceAll(line, "->", ""))
	protocol, state := protocols[words[0]], uint8(0)
	states := tcpStates[:]
	if protocol == sctp {
		states = sctpStates[:]
	}
	if at := slices.Index(states, words[1]); at >= 0 {
		state, words = uint8(at), words[1:]
	}
	client, frontend, words := words[1], words[2], words[3:]
	endpoint := frontend
	if len(words) > 0 && strings.Contains(words[0], ":") {
		endpoint, words = words[0], words[1:]
	}
	flow := newFlow(protocol, client, frontend, endpoint)
	flow.state = state
	if len(words) > 0 {
		if status, ok := map[string]uint32{"answered": statusAssured, "unanswered": statusConfirmed}[words[0]]; ok {
			flow.status, words = status, words[1:]
		}
	}
	if n := len(words); n > 0 {
		id, _ := strconv.Atoi(words[n-1])
		directions := map[string]zoneDirection{"original": zoneOriginal, "reply": zoneReply, "zone": zoneBoth}
		flow.zone = zone{uint16(id), directions[words[0]]}
	}
	return flow
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

// open opens the table of the thread's namespace until the test ends.
func open(t testing.TB) *Conn {
	t.Helper()
	c, err := Open()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
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

// withoutUnpredictable returns flows without the fields that are not
// predictable, and without ICMPv6, which the kernel itself sends.
func withoutUnpredictable(all []trackedFlow) (flows []trackedFlow) {
	for _, flow := range all {
		if flow.protocol != unix.IPPROTO_ICMPV6 {
			flow.id, flow.status, flow.state = 0, 0, 0
			flows = append(flows, flow)
		}
	}
	return flows
}

// list returns all flows of the table, as withoutUnpredictable returns them.
func list(t testing.TB, c *Conn) []trackedFlow {
	t.Helper()
	return withoutUnpredictable(slices.Collect(mustYield(t, c.listFlows(Selection{}))))
}

// wantFlows compares the flows of the table.
func wantFlows(t testing.TB, c *Conn, want []trackedFlow) {
	t.Helper()
	if got := list(t, c); !sameFlows(got, want) {
		t.Errorf("got %d flows %v\nwant %d %v", len(got), got, len(want), want)
	}
}

func sameFlows(a, b []trackedFlow) bool {
	order := func(x, y trackedFlow) int { return slices.Compare(flowPayload(x), flowPayload(y)) }
	return slices.Equal(slices.SortedFunc(slices.Values(a), order), slices.SortedFunc(slices.Values(b), order))
}

// add adds flows to the table, as conntrackd does.
func add(t testing.TB, c *Conn, flows ...trackedFlow) {
	t.Helper()
	for batch := range slices.Chunk(flows, 128) {
		w := nfnetlink.Writer{Seq: c.calls.Seq}
		for i, flow := range batch {
			flags := uint16(unix.NLM_F_CREATE | unix.NLM_F_EXCL)
			if i == len(batch)-1 {
				flags |= unix.NLM_F_ACK
			}
			writeNew(&w, flags, flow)
		}
		if err := c.calls.Request(&w, func(nfnetlink.Message) error { return nil }); err != nil {
			t.Fatalf("add flows: %v", err)
		}
	}
}

func writeNew(w *nfnetlink.Writer, flags uint16, flow trackedFlow) {
	const ctaTimeout = 7
	at := w.Begin(messageNew, flags, flow.family(), 0)
	if flow.protocol != udp && flow.translated() {
		writeTranslation(w, flow.reply.src)
		flow.reply.src = flow.original.dst
	}
	writeFlow(w, flow)
	w.Uint32(ctaTimeout, 3600)
	w.End(at)
}

// writeTranslation writes CTA_NAT_DST, so that the kernel knows that it
// translates the destination.
func writeTranslation(w *nfnetlink.Writer, to netip.AddrPort) {
	const ctaNATDst, protocol, portMin, portMax = 13, 3, 1, 2
	nat := w.Nest(ctaNATDst)
	for _, kind := range []uint16{1, 2} { // the first and the last address; 4 and 5 for IPv6
		w.Addr(kind, kind+3, to.Addr())
	}
	nest := w.Nest(protocol)
	w.Uint16(portMin, to.Port())
	w.Uint16(portMax, to.Port())
	w.Unnest(nest)
	w.Unnest(nat)
}

// writeFlow writes the attributes of a flow in the format of a dump. The flow
// is assured, except an attempt to connect.
func writeFlow(w *nfnetlink.Writer, flow trackedFlow) {
	zones := [3]uint16{}
	zones[flow.zone.direction] = flow.zone.id
	writeTuple(w, ctaTupleOrig, flow.protocol, flow.original, zones[zoneOriginal])
	writeTuple(w, ctaTupleReply, flow.protocol, flow.reply, zones[zoneReply])
	if zones[zoneBoth] != 0 {
		w.Uint16(ctaZone, zones[zoneBoth])
	}
	if flow.state != 0 {
		writeState(w, flow)
	}
	begins := flow.protocol == tcp && flow.state == tcpSynSent || flow.protocol == sctp && flow.state == sctpCookieWait
	status := flow.status
	if !begins && status != statusConfirmed {
		status |= statusAssured
	}
	if status != 0 {
		w.Uint32(ctaStatus, status)
	}
	w.Uint32(ctaID, flow.id)
}

func writeState(w *nfnetlink.Writer, flow trackedFlow) {
	kind := uint16(ctaProtoInfoTCP)
	if flow.protocol == sctp {
		kind = ctaProtoInfoSCTP
	}
	info := w.Nest(ctaProtoInfo)
	nest := w.Nest(kind)
	w.Uint8(ctaState, flow.state)
	if flow.protocol == sctp {
		const tagOriginal, tagReply = 2, 3
		w.Uint32(tagOriginal, 1)
		w.Uint32(tagReply, 1)
	}
	w.Unnest(nest)
	w.Unnest(info)
}
