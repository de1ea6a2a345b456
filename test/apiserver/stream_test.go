package apiserver

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/test/lab"
	"github.com/nftproxy/nftproxy/test/lab/frontend"
)

// stream begins connections and UDP flows at a fixed rate, independent of the
// outcome of earlier ones.
type stream struct {
	t      testing.TB
	cancel context.CancelFunc
	begin  sync.WaitGroup // of run
	wait   sync.WaitGroup // of attempts
	routes []route
	ended  atomic.Int64

	mu       sync.Mutex // guards failures and phases
	failures []string
	phases   []*phase // the last one is the current one
}

// phase counts the attempts that begin in a part of a test.
type phase struct {
	name            string
	attempts, fails int
}

// route is the source and destination of attempts.
type route struct {
	from *lab.Namespace
	to   frontend.Frontend
	// guarded is set if attempts must not be answered.
	guarded bool
}

// streamEvery is the time between two attempts: 200 per second.
const streamEvery = 5 * time.Millisecond

// startStream starts a stream on the routes of a Service.
func (s *service) startStream(t testing.TB) *stream {
	t.Helper()
	return s.w.startStream(t, s.routes()...)
}

// startStream starts a stream on these routes, in turn, until stop or the end
// of the test.
func (w *world) startStream(t testing.TB, routes ...route) *stream {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	out := &stream{t: t, cancel: cancel, routes: routes, phases: []*phase{{name: "stream"}}}
	out.begin.Go(func() { out.run(ctx) })
	t.Cleanup(out.stop)
	return out
}

// routes returns routes to a Service: to its ClusterIPs from a pod of node1
// and from node1, to its NodePorts from the client.
func (s *service) routes() []route {
	var out []route
	for _, to := range s.clusterIPs() {
		out = append(out, route{from: s.w.pods["a1"].Namespace, to: to}, route{from: s.w.Node1.Namespace, to: to})
	}
	for _, to := range s.nodePorts() {
		out = append(out, route{from: s.w.Client, to: to})
	}
	return out
}

func (s *stream) run(ctx context.Context) {
	ticker := time.NewTicker(streamEvery)
	defer ticker.Stop()
	for i := 0; ; i++ {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		route := s.routes[i%len(s.routes)]
		s.mu.Lock()
		in := s.phases[len(s.phases)-1]
		in.attempts++
		s.mu.Unlock()
		s.wait.Go(func() {
			if err := route.attempt(); err != nil {
				s.mu.Lock()
				in.fails++
				at := time.Now().Format(time.TimeOnly)
				s.failures = append(s.failures, fmt.Sprintf("%s %s -> %v: %v", at, route.from.Name, route.to, err))
				s.mu.Unlock()
			}
			s.ended.Add(1)
		})
	}
}

// attempt connects once. It fails also if a packet was lost and repeated.
func (r route) attempt() error {
	if r.guarded {
		if result := r.probe(shortly); result.Outcome != lab.TimedOut {
			return fmt.Errorf("got %v, want no answer", result)
		}
		return nil
	}
	options := lab.ProbeOptions{Timeout: answerTimeout}
	conn, result := lab.Open(context.Background(), r.from, r.to.Network, r.to.To, options)
	if conn == nil {
		return errors.New(result.String())
	}
	defer conn.Close()
	lost, err := conn.Lost()
	if err == nil && lost > 0 {
		err = fmt.Errorf("got %d lost packets, want none", lost)
	}
	return err
}

func (r route) probe(timeout time.Duration) lab.Result {
	return r.to.Probe(context.Background(), r.from, lab.ProbeOptions{Timeout: timeout})
}

// ask connects once and returns the pod that answers.
func (r route) ask() (pod string, err error) {
	result := r.probe(answerTimeout)
	if result.Outcome != lab.Answered {
		return "", errors.New(result.String())
	}
	return result.Answer.Server, nil
}

// stop ends the stream and waits for its attempts. It can be called more than
// once.
func (s *stream) stop() {
	s.cancel()
	s.begin.Wait()
	s.wait.Wait()
}

// phase begins another phase.
func (s *stream) phase(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.phases = append(s.phases, &phase{name: fmt.Sprintf(format, args...)})
}

// pass waits for n more attempts.
func (s *stream) pass(n int64) {
	s.t.Helper()
	want := s.ended.Load() + n
	eventually(s.t, "stream", func() error {
		if ended := s.ended.Load(); ended < want {
			return fmt.Errorf("%d attempts, want %d", ended, want)
		}
		return nil
	})
}

// mustNotFail stops the stream and reports failed attempts.
func (s *stream) mustNotFail() {
	s.t.Helper()
	s.stop()
	const most = 10
	for _, failure := range s.failures[:min(most, len(s.failures))] {
		s.t.Error(failure)
	}
	for _, p := range s.phases {
		if p.attempts > 0 {
			s.t.Logf("%s: %d of %d attempts failed", p.name, p.fails, p.attempts)
		}
	}
}
