package packet

import (
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/test/lab"
)

// repeatSteps returns the steps of clients that repeat packets without an
// answer.
func (s *story) repeatSteps() map[string]any {
	return map[string]any{"attempts": s.attempts, "repeat": s.repeat, "busy": s.busy}
}

// attempts makes n connections at once from each client, and returns how many
// get no answer: none, some, or all.
func (s *story) attempts(n int, timeout time.Duration, clients ...string) string {
	return s.count(n, clients, func(k *check, _ uint16) bool {
		r := k.probe(s.t.Context(), lab.ProbeOptions{Timeout: timeout})
		if r.Outcome != lab.Answered {
			s.t.Logf("%s: %v", k.describe, r)
		}
		return r.Outcome == lab.Answered
	})
}

// repeat is like attempts for UDP flows, which send again after 4 s, as a
// resolver does.
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

// busy starts servers whose queue is full, so that they accept no connection.
func (s *story) busy(port uint16, pods ...string) {
	for _, name := range pods {
		pod := s.origin(name).Namespace
		for _, addr := range pod.Addrs() {
			if err := pod.Do(func() error { return s.fillQueue(netip.AddrPortFrom(addr, port)) }); err != nil {
				s.t.Fatal(err)
			}
		}
	}
}

// fillQueue listens until the end of the script. The kernel drops a SYN if one
// connection waits to be accepted.
func (s *story) fillQueue(at netip.AddrPort) error {
	var to unix.Sockaddr = &unix.SockaddrInet6{Port: int(at.Port()), Addr: at.Addr().As16()}
	domain := unix.AF_INET6
	if at.Addr().Is4() {
		to, domain = &unix.SockaddrInet4{Port: int(at.Port()), Addr: at.Addr().As4()}, unix.AF_INET
	}
	open := func() (int, error) {
		fd, err := unix.Socket(domain, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		s.env.T.Cleanup(func() { unix.Close(fd) })
		return fd, err
	}
	listener, err := open()
	if err != nil {
		return err
	}
	if err := unix.Bind(listener, to); err != nil {
		return err
	}
	if err := unix.Listen(listener, 0); err != nil {
		return err
	}
	client, err := open()
	if err != nil {
		return err
	}
	return unix.Connect(client, to)
}
