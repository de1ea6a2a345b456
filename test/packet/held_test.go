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
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/test/lab"
)

// held is an open TCP connection or SCTP association, or a UDP flow: packets
// from a port that does not change, which connection tracking considers one
// flow.
type held struct {
	*check
	conn *lab.Conn // nil for UDP
	port uint16    // of UDP
}

// heldSteps returns the steps of clients that keep a connection or flow:
//
//	open NAME SERVICE[,SERVICE...] FROM... -> TO...   opens connections, or chooses ports for UDP
//	ask NAME => OUTCOME      sends on all of them; each must have the outcome: a pod that answers,
//	                         an answer of any pod, refused, reset, or no answer
//	close NAME               closes them
//	unanswered NAME          sends on all of them; none may get an answer
//	heartbeat NAME           sends a heartbeat of SCTP, which nothing answers
//	write NAME               sends on each second connection, without waiting
//	reset-within NAME TIME   returns how many are reset within a time: all, none, or some
//	silence POD...           drops all packets to and from pods, as if their node were lost
func heldSteps() map[string]step {
	return map[string]step{
		"open": (*story).open, "ask": (*story).ask, "write": (*story).write, "reset-within": (*story).resetWithin,
		"silence": (*story).silence, "close": (*story).close, "unanswered": (*story).unanswered, "heartbeat": (*story).heartbeat,
	}
}

// firstFlowPort is the first port of UDP flows.
const firstFlowPort = 31000

func (s *story) open(t testing.TB, args []string) string {
	if s.held == nil {
		s.held = map[string][]*held{}
	}
	for _, k := range s.expectations(args[1:]) {
		h := &held{check: k, port: firstFlowPort + uint16(s.flowPorts)}
		s.flowPorts++
		if k.network != "udp" {
			var result lab.Result
			h.conn, result = lab.Open(t.Context(), k.origin.Namespace, k.network, k.to, lab.ProbeOptions{})
			if h.conn == nil {
				t.Fatalf("%s: got %v, want an answer", k.describe, result)
			}
			s.env.T.Cleanup(func() { h.conn.Close() })
		}
		s.held[args[0]] = append(s.held[args[0]], h)
	}
	return ""
}

func (s *story) ask(t testing.TB, args []string) string {
	want := strings.Join(args[2:], " ")
	timeout := answerTimeout
	if want == "no answer" || s.awaiting {
		timeout = silence
	}
	all := s.held[args[0]]
	if len(all) == 0 || args[1] != "=>" {
		t.Fatalf("want ask NAME => OUTCOME with an open connection")
	}
	results := make([]lab.Result, len(all))
	var wait sync.WaitGroup
	for i, h := range all {
		wait.Go(func() { results[i] = h.ask(t.Context(), timeout) })
	}
	wait.Wait()
	for i, r := range results {
		if !strings.HasPrefix(fate(r), want) {
			t.Errorf("%s: got %v, want %s", all[i].describe, r, want)
		}
	}
	return ""
}

func (s *story) close(_ testing.TB, args []string) string {
	for _, h := range s.held[args[0]] {
		h.conn.Close()
	}
	return ""
}

func (s *story) unanswered(t testing.TB, args []string) string {
	for _, h := range s.held[args[0]] {
		if r := h.ask(t.Context(), silence/4); r.Outcome == lab.Answered {
			t.Errorf("%s: got %v, want no answer", h.describe, r)
		}
	}
	return ""
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

func (s *story) heartbeat(t testing.TB, args []string) string {
	for _, h := range s.held[args[0]] {
		if err := h.conn.Heartbeat(); err != nil {
			t.Error(err)
		}
	}
	return ""
}

func (s *story) write(t testing.TB, args []string) string {
	for i, h := range s.held[args[0]] {
		h.conn.Conn.(*net.TCPConn).SetKeepAlive(false)
		if i%2 == 0 {
			continue // stays idle
		}
		if _, err := h.conn.Write([]byte("unanswered\n")); err != nil {
			t.Fatal(err)
		}
	}
	return ""
}

func (s *story) resetWithin(t testing.TB, args []string) string {
	limit, err := time.ParseDuration(args[1])
	if err != nil {
		t.Fatal(err)
	}
	deadline, reset := time.Now().Add(limit), 0
	for _, h := range s.held[args[0]] {
		h.conn.SetReadDeadline(deadline)
		if _, err := h.conn.Read(make([]byte, 1)); errors.Is(err, syscall.ECONNRESET) {
			reset++
		}
	}
	switch reset {
	case 0:
		return "none"
	case len(s.held[args[0]]):
		return "all"
	}
	return fmt.Sprintf("%d of %d", reset, len(s.held[args[0]]))
}

func (s *story) silence(t testing.TB, pods []string) string {
	return s.on(t, []string{strings.Join(pods, ","), "nft", `table inet silence {
		chain in { type filter hook input priority -400; policy drop; }
		chain out { type filter hook output priority -400; policy drop; }
	}`})
}
