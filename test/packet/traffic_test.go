package packet

import (
	"context"
	"flag"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/test/lab"
)

// traffic is clients that connect again and again.
type traffic struct {
	ctx     context.Context
	began   time.Time
	cancel  context.CancelFunc
	wait    sync.WaitGroup
	clients []*trafficClient
	count   atomic.Int64 // clients
}

type trafficClient struct {
	*check
	pause  time.Duration // between attempts, 0 for the shortest
	ended  atomic.Int64  // attempts that ended
	failed atomic.Int64
	first  string // failed attempt, read after the end
}

var attemptEvery = flag.Duration("attempt-every", 25*time.Millisecond,
	"Pause between two attempts of a client, which leaves processor time for the proxies.")

// trafficSteps returns the steps of clients that connect again and again, and
// of endpoints that start and stop meanwhile.
func (s *story) trafficSteps() map[string]any {
	return map[string]any{
		"traffic": s.startTraffic, "every": s.startSlowTraffic,
		// waits until each of these clients made n more attempts.
		"pass": func(n int64) { s.traffic.pass(s.t, n) },
		// ends the traffic: no attempt may have failed.
		"no-failures": func() {
			s.traffic.mustNotFail(s.t)
			s.traffic = nil
		},
		// waits until attempts succeed again, and ends the traffic.
		"recovers": func() {
			s.traffic.awaitRecovery(s.t)
			s.traffic.stop()
			s.traffic = nil
		},
		"scale": s.scale, "end": s.endTerminating, "rollout": s.rollout,
	}
}

// startTraffic starts clients that connect to a Service again and again, over
// all its protocols and families, until no-failures, recovers, or the end of
// the script.
func (s *story) startTraffic(timeout time.Duration, args ...string) {
	s.startSlowTraffic(0, timeout, args...)
}

// startSlowTraffic PAUSE is like traffic, with a pause between the attempts of
// a client.
func (s *story) startSlowTraffic(pause, timeout time.Duration, args ...string) {
	if s.traffic == nil {
		ctx, cancel := context.WithCancel(context.Background())
		s.traffic = &traffic{ctx: ctx, cancel: cancel, began: time.Now()}
		s.env.T.Cleanup(s.traffic.stop)
	}
	w := s.traffic
	for _, k := range s.expectations(s.allClients(args)...) {
		client := &trafficClient{check: k, pause: pause}
		w.clients = append(w.clients, client)
		w.count.Add(1)
		w.wait.Go(func() { w.connect(client, timeout) })
	}
}

// connect makes the attempts of a client. All clients together make at most
// 500 attempts a second.
func (w *traffic) connect(c *trafficClient, timeout time.Duration) {
	for w.ctx.Err() == nil {
		// The end of the traffic does not interrupt an attempt.
		result := c.probe(context.Background(), lab.ProbeOptions{Timeout: timeout})
		if result.Outcome != lab.Answered && c.failed.Add(1) == 1 {
			c.first = fmt.Sprintf("attempt %d: %v", c.ended.Load()+1, result)
		}
		c.ended.Add(1)
		pause := max(*attemptEvery, time.Duration(w.count.Load())*2*time.Millisecond, c.pause)
		select {
		case <-w.ctx.Done():
		case <-time.After(pause):
		}
	}
}

// stop ends the traffic. It can be called more than once.
func (w *traffic) stop() {
	w.cancel()
	w.wait.Wait()
}

// pass waits until all current attempts have ended, and n more of each
// client.
func (w *traffic) pass(t testing.TB, n int64) {
	t.Helper()
	want := make([]int64, len(w.clients))
	for i, c := range w.clients {
		want[i] = c.ended.Load() + 1 + n
	}
	for i, c := range w.clients {
		eventually(t, c.describe, func() error {
			if ended := c.ended.Load(); ended < want[i] {
				return fmt.Errorf("%d attempts, want %d", ended, want[i])
			}
			return nil
		})
	}
}

// mustNotFail stops the traffic and reports failed attempts.
func (w *traffic) mustNotFail(t testing.TB) {
	t.Helper()
	w.stop()
	total := int64(0)
	for _, c := range w.clients {
		total += c.ended.Load()
		if n := c.failed.Load(); n > 0 {
			t.Errorf("%v %s -> %v: %d of %d attempts failed; first: %s",
				c.origin.Name, c.network, c.to, n, c.ended.Load(), c.first)
		}
	}
	t.Logf("%d attempts of %d clients, %.0f per second",
		total, len(w.clients), float64(total)/time.Since(w.began).Seconds())
}

// awaitRecovery waits until several attempts of each client in a row succeed.
func (w *traffic) awaitRecovery(t testing.TB) {
	t.Helper()
	failed := make([]int64, len(w.clients))
	eventually(t, "recovery", func() error {
		for i, c := range w.clients {
			failed[i] = c.failed.Load()
		}
		w.pass(t, 4)
		for i, c := range w.clients {
			if n := c.failed.Load() - failed[i]; n > 0 {
				return fmt.Errorf("%s: %d attempts failed", c.describe, n)
			}
		}
		return nil
	})
}

// servers are the servers of a pod that is an endpoint.
type servers struct{ tcp, udp *lab.Server }

// scale starts servers in pods and makes them the endpoints of a Service.
// Earlier ones terminate.
func (s *story) scale(service string, pods ...string) {
	s.wanted = pods
	for _, name := range pods {
		if _, running := s.servers[name]; !running {
			s.startServers(spareTarget, name)
		}
	}
	endpoints := fmt.Sprint("port=", spareTarget, " ", strings.Join(pods, " "))
	for name := range s.servers {
		if !slices.Contains(pods, name) {
			endpoints += " " + name + ":terminating"
		}
	}
	s.setEndpoints(endpoints, service)
}

// endTerminating removes the endpoints of a Service that terminate.
func (s *story) endTerminating(service string) {
	s.setEndpoints(fmt.Sprint("port=", spareTarget, " ", strings.Join(s.wanted, " ")), service)
	for name := range s.servers {
		if !slices.Contains(s.wanted, name) {
			s.stopServers(name)
		}
	}
}

// startServers starts TCP and UDP servers in pods, which stopServers can end.
func (s *story) startServers(port uint16, pods ...string) {
	for _, name := range pods {
		tcp, err := s.pods[name].ServeTCP(port)
		if err != nil {
			s.t.Fatal(err)
		}
		udp, err := s.pods[name].ServeUDP(port)
		if err != nil {
			s.t.Fatal(err)
		}
		s.servers[name] = servers{tcp, udp}
	}
}

// stopServers ends the servers that startServers started in pods.
func (s *story) stopServers(pods ...string) {
	for _, name := range pods {
		s.servers[name].tcp.Close()
		s.servers[name].udp.Close()
		delete(s.servers, name)
	}
}

// rollout scales a Service, and removes the endpoints that terminate, with
// attempts between.
func (s *story) rollout(service string, pods ...string) {
	const attempts = 3
	s.traffic.pass(s.t, attempts)
	s.scale(service, pods...)
	s.traffic.pass(s.t, attempts) // later attempts do not use terminating endpoints
	s.endTerminating(service)
	s.traffic.pass(s.t, attempts)
}
