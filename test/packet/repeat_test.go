package packet

import (
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nftproxy/nftproxy/test/lab"
)

// repeatSteps returns the steps of clients that repeat packets without an
// answer. Both return how many get none: none, some, or all.
//
//	attempts N TIMEOUT SERVICE FROM... -> TO   makes N connections at once from each client
//	repeat N TIMES SERVICE FROM... -> TO       sends on N UDP flows at once, and again after 4 s, as a
//	                                           resolver does
func (s *story) repeatSteps() map[string]any {
	return map[string]any{"attempts": s.attempts, "repeat": s.repeat}
}

func (s *story) attempts(n int, timeout time.Duration, clients ...string) string {
	return s.count(n, clients, func(k *check, _ uint16) bool {
		return k.probe(s.t.Context(), lab.ProbeOptions{Timeout: timeout}).Outcome == lab.Answered
	})
}

func (s *story) repeat(n, times int, clients ...string) string {
	return s.count(n, clients, func(k *check, port uint16) bool {
		for range times {
			began := time.Now()
			from := lab.ProbeOptions{Local: netip.AddrPortFrom(netip.Addr{}, port), Timeout: 4 * time.Second}
			if k.probe(s.t.Context(), from).Outcome == lab.Answered {
				return true
			}
			time.Sleep(time.Until(began.Add(from.Timeout)))
		}
		return false
	})
}

// count makes n attempts for each expectation, each with a port of its own, and
// returns how many have no answer.
func (s *story) count(n int, clients []string, answered func(*check, uint16) bool) string {
	var wait sync.WaitGroup
	var all, failed atomic.Int32
	for _, k := range s.expectations(clients...) {
		for range n {
			port := firstFlowPort + uint16(s.flowPorts)
			s.flowPorts++
			wait.Go(func() {
				all.Add(1)
				if !answered(k, port) {
					failed.Add(1)
				}
			})
		}
	}
	wait.Wait()
	switch failed.Load() {
	case 0:
		return "none"
	case all.Load():
		return "all"
	}
	return "some"
}
