package packet

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/nftproxy/nftproxy/test/lab"
)

// held is an open TCP connection or SCTP association, or a UDP flow: packets
// from a port that does not change, which connection tracking considers one
// flow.
type held struct {
	*check
	conn *lab.Conn // nil for UDP and before the answer to an INIT
	port uint16    // without a conn
}

// heldSteps returns the steps of clients that keep a connection or flow.
func (s *story) heldSteps() map[string]any {
	return map[string]any{
		"open": s.open, "begin": s.begin, "ask": s.ask, "close": s.close, "write": s.write,
		"reset-within": s.resetWithin,
		"silence":      s.silence, "unanswered": s.unanswered, "heartbeat": s.heartbeat,
	}
}

// firstFlowPort is the first port of UDP flows.
const firstFlowPort = 31000

// open opens connections, or chooses ports for UDP flows.
func (s *story) open(name string, args ...string) {
	s.begin(name, args...)
	for _, h := range s.held[name] {
		if h.network == "udp" || h.conn != nil {
			continue
		}
		var result lab.Result
		h.conn, result = lab.Open(s.t.Context(), h.origin.Namespace, h.network, h.to, lab.ProbeOptions{})
		if h.conn == nil {
			s.t.Fatalf("%s: got %v, want an answer", h.describe, result)
		}
		s.env.T.Cleanup(func() { h.conn.Close() })
	}
}

// begin chooses ports for UDP flows, and for SCTP associations that have no
// answer yet: ask repeats their INIT.
func (s *story) begin(name string, args ...string) {
	for _, k := range s.expectations(args...) {
		s.held[name] = append(s.held[name], &held{check: k, port: firstFlowPort + uint16(s.flowPorts)})
		s.flowPorts++
	}
}

// ask NAME => OUTCOME sends on all of them: each is answered by this pod, is
// refused or reset, or gets "no answer".
func (s *story) ask(name string, args ...string) {
	want := strings.TrimPrefix(strings.Join(args, " "), "=> ")
	timeout := answerTimeout
	if want == "no answer" || s.awaiting {
		timeout = silence
	}
	all := s.held[name]
	if len(all) == 0 || len(args) < 2 {
		s.t.Fatalf("want ask NAME => OUTCOME with an open connection")
	}
	results := make([]lab.Result, len(all))
	var wait sync.WaitGroup
	for i, h := range all {
		wait.Go(func() { results[i] = h.ask(s.t.Context(), timeout) })
	}
	wait.Wait()
	for i, r := range results {
		if !strings.HasPrefix(fate(r), want) {
			s.t.Errorf("%s: got %v, want %s", all[i].describe, r, want)
		}
	}
}

// close closes them.
func (s *story) close(name string) {
	for _, h := range s.held[name] {
		h.conn.Close()
	}
}

// unanswered sends on all of them, and none may get an answer.
func (s *story) unanswered(name string) {
	for _, h := range s.held[name] {
		if r := h.ask(s.t.Context(), silence/4); r.Outcome == lab.Answered {
			s.t.Errorf("%s: got %v, want no answer", h.describe, r)
		}
	}
}

// ask sends another packet.
func (h *held) ask(ctx context.Context, timeout time.Duration) lab.Result {
	if h.conn == nil {
		return h.probe(ctx, lab.ProbeOptions{Local: netip.AddrPortFrom(netip.Addr{}, h.port), Timeout: timeout})
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return h.conn.Ask(ctx)
}

// fate describes the outcome of an attempt.
func fate(r lab.Result) string {
	switch {
	case errors.Is(r.Err, syscall.ECONNRESET):
		return "reset"
	case r.Outcome == lab.Answered:
		return r.Answer.Server
	case r.Outcome == lab.TimedOut:
		return "no answer"
	}
	return r.Outcome.String()
}

// heartbeat sends a heartbeat of SCTP on each second one, which nothing
// answers.
func (s *story) heartbeat(name string) {
	for _, h := range s.held[name] {
		if err := h.conn.Heartbeat(); err != nil {
			s.t.Error(err)
		}
	}
}

// write sends on each second one without waiting.
func (s *story) write(name string) {
	for i, h := range s.held[name] {
		h.conn.Conn.(*net.TCPConn).SetKeepAlive(false)
		if i%2 == 0 {
			continue // stays idle
		}
		if _, err := h.conn.Write([]byte("unanswered\n")); err != nil {
			s.t.Fatal(err)
		}
	}
}

// resetWithin returns how many are reset within a time: all, none, or 2 of 8.
func (s *story) resetWithin(name string, limit time.Duration) string {
	deadline, reset := time.Now().Add(limit), 0
	for _, h := range s.held[name] {
		h.conn.SetReadDeadline(deadline)
		if _, err := h.conn.Read(make([]byte, 1)); errors.Is(err, syscall.ECONNRESET) {
			reset++
		}
	}
	switch reset {
	case 0:
		return "none"
	case len(s.held[name]):
		return "all"
	}
	return fmt.Sprintf("%d of %d", reset, len(s.held[name]))
}

// silence makes pods answer nothing except ARP and neighbour discovery. Without
// the latter, ICMPv6 errors would end attempts once the neighbour is forgotten.
func (s *story) silence(pods ...string) {
	const nd = "icmpv6 type { nd-neighbor-solicit, nd-neighbor-advert } accept"
	s.on(strings.Join(pods, ","), "nft", fmt.Sprintf(`table inet silence {
		chain in { type filter hook input priority -400; policy drop; %[1]s; }
		chain out { type filter hook output priority -400; policy drop; %[1]s; }
	}`, nd))
}
