package conntrack

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// A Counter counts connections of both families, and what is new.
func TestCounter(t *testing.T) {
	web := newFlow(tcp, "10.0.0.1:4000", "10.96.0.10:80", "10.244.0.5:8080")
	attempt := web.fromClient(addrPort("10.0.0.1:4001"))
	attempt.state = tcpSynSent
	web.status = statusSeenReply
	other := newFlow(tcp, "[fd00::1]:4000", "[fd96::10]:53", "[fd24::5]:53")
	direct := newFlow(tcp, "10.0.0.1:4009", "10.244.0.5:8080", "10.244.0.5:8080")
	conn := inNamespace(t, web, attempt, other, direct)
	c := Counter{conn: conn, max: 2}
	count := func(want string) {
		t.Helper()
		n, err := c.Count(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var lines []string
		for p, n := range n.Pairs {
			lines = append(lines, fmt.Sprint(p.Protocol, " ", p.Endpoint, " ", *n))
		}
		slices.Sort(lines)
		if n.LeftOut > 0 {
			lines = append(lines, fmt.Sprint("left out ", n.LeftOut))
		}
		if got := strings.Join(lines, ", "); got != want {
			t.Errorf("got %s\nwant %s", got, want)
		}
	}
	count("6 10.244.0.5:8080 {2 1 0 0 2 1}, 6 [fd24::5]:53 {1 0 0 0 1 1}")
	count("6 10.244.0.5:8080 {2 1 0 0 0 0}, 6 [fd24::5]:53 {1 0 0 0 0 0}")

	var gone trackedFlow
	for flow := range mustYield(t, conn.listFlows(Selection{Family: IPv6})) {
		gone = flow
	}
	wantDeleted(t, conn, 1, gone)
	more := web.fromClient(addrPort("10.0.0.1:4002"))
	add(t, conn, more)
	count("6 10.244.0.5:8080 {3 1 0 0 1 1}")

	if c.last.add(gone.id, 0) != 0 {
		t.Error("a connection that ended is still known")
	}
	n := &Count{Pairs: make(map[Pair]*PairCount)}
	for flow := range mustYield(t, conn.listFlows(Selection{Family: IPv4, Translated: true})) {
		flow.status |= statusSeenReply // of the attempt, too
		c.add(n, flow)
	}
	for _, got := range n.Pairs {
		if want := (PairCount{Connections: 3, Opening: 1, Replies: 1}); *got != want {
			t.Errorf("got %v, want %v", *got, want)
		}
	}

	c.Forget()
	c.max = 1
	add(t, conn, newFlow(tcp, "10.0.0.1:4003", "10.96.0.10:80", "10.244.0.6:8080"))
	if n, err := c.Count(t.Context()); err != nil || len(n.Pairs) != 1 || n.LeftOut == 0 || n.Since != 0 {
		t.Errorf("got %+v, %v, want one pair of a first walk", n, err)
	}
}

// Each answered connection is open, or in one of two other states.
func TestStates(t *testing.T) {
	const answered = statusSeenReply
	for _, test := range []struct {
		flow trackedFlow
		want PairCount
	}{
		{trackedFlow{protocol: tcp, state: tcpSynRecv, status: answered}, PairCount{Opening: 1}},
		{trackedFlow{protocol: tcp, state: 3, status: answered}, PairCount{}},
		{trackedFlow{protocol: tcp, state: tcpFinWait, status: answered}, PairCount{Closing: 1}},
		{trackedFlow{protocol: tcp, state: tcpClose, status: answered}, PairCount{Closing: 1}},
		{trackedFlow{protocol: tcp, status: answered | statusOffload}, PairCount{}},
		{trackedFlow{protocol: tcp, state: tcpSynSent}, PairCount{Unanswered: 1}},
		{trackedFlow{protocol: sctp, state: sctpCookieWait, status: answered}, PairCount{Opening: 1}},
		{trackedFlow{protocol: sctp, state: 4, status: answered}, PairCount{}},
		{trackedFlow{protocol: sctp, state: 6, status: answered}, PairCount{Closing: 1}},
		{trackedFlow{protocol: sctp, state: 8, status: answered}, PairCount{}},
		{trackedFlow{protocol: udp, status: answered}, PairCount{}},
		{trackedFlow{protocol: udp}, PairCount{Unanswered: 1}},
	} {
		c, n := Counter{max: 1, last: new(idSet), next: new(idSet)}, &Count{Pairs: make(map[Pair]*PairCount)}
		c.add(n, test.flow)
		for _, got := range n.Pairs {
			test.want.Connections, test.want.New, test.want.Replies = 1, 1, got.Replies
			if *got != test.want {
				t.Errorf("%v state %d: got %+v, want %+v", test.flow, test.flow.state, *got, test.want)
			}
		}
	}
}
