package apiserver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/test/lab"
)

// stream is a steady stream of new connections and UDP flows. They begin when it is their time, whatever becomes of those before.
type stream struct {
	t      testing.TB
	cancel context.CancelFunc
	begin  sync.WaitGroup // the beginner of attempts
	wait   sync.WaitGroup // attempts
	routes []route
	ended  atomic.Int64

	mu       sync.Mutex // guards what follows
	failures []string
	phases   []*phase // the last one goes on
}

// phase counts the attempts that began in a part of a test.
type phase struct {
	name            string
	attempts, fails int
}

// route is where attempts come from and go to.
type route struct {
	from *lab.Namespace
	to   destination
	// guarded is set if attempts must not be answered.
	guarded bool
}

// streamEvery is the time between two attempts: 200 a second.
const streamEvery = 5 * time.Millisecond

// startStream begins attempts on all ways to a Service, in turn, until the test ends at the latest.
func (s *service) startStream(t testing.TB) *stream {
	t.Helper()
	return s.w.startStream(t, s.routes()...)
}

// startStream begins attempts on these routes, in turn, until the test ends at
// the latest.
func (w *world) startStream(t testing.TB, routes ...route) *stream {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	out := &stream{t: t, cancel: cancel, routes: routes, phases: []*phase{{name: "stream"}}}
	out.begin.Go(func() { out.run(ctx) })
	t.Cleanup(out.stop)
	return out
}

// routes are all ways to a Service: to its ClusterIPs from a pod of node1 and node1 itself, to its NodePorts from the client.
func (s *service) routes() []route {
	var out []route
	for _, to := range s.clusterIPs() {
		out = append(out, route{from: s.w.pods["a1"].Namespace, to: to}, route{from: s.w.Node1.Namespace, to: to})
	}
	for _, to := range s.nodePorts(s.w.Node1) {
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
				s.failures = append(s.failures, fmt.Sprintf("%s %s -> %v: %v", time.Now().Format(time.TimeOnly), route.from.Name, route.to, err))
				s.mu.Unlock()
			}
			s.ended.Add(1)
		})
	}
}

// attempt connects once. One that is answered because TCP repeated a packet that was lost has failed too.
func (r route) attempt() error {
	if r.guarded {
		result := lab.Probe(context.Background(), r.from, r.to.network, r.to.addr, lab.ProbeOptions{Timeout: shortly})
		if result.Outcome != lab.TimedOut {
			return fmt.Errorf("%v, want no answer", result)
		}
		return nil
	}
	conn, result := lab.Open(context.Background(), r.from, r.to.network, r.to.addr, lab.ProbeOptions{Timeout: answerTimeout})
	if conn == nil {
		return errors.New(result.String())
	}
	defer conn.Close()
	tcp, ok := conn.Conn.(*net.TCPConn)
	if !ok {
		return nil // UDP does not repeat
	}
	repeated, err := repetitions(tcp)
	if err == nil && repeated > 0 {
		err = fmt.Errorf("%d packets were lost on the way", repeated)
	}
	return err
}

// ask connects once and returns the pod that answers.
func (r route) ask() (pod string, err error) {
	result := lab.Probe(context.Background(), r.from, r.to.network, r.to.addr, lab.ProbeOptions{Timeout: answerTimeout})
	if result.Outcome != lab.Answered {
		return "", errors.New(result.String())
	}
	return result.Answer.Server, nil
}

// repetitions tells how many packets the kernel sent more than once, the first one of the connection included.
func repetitions(conn *net.TCPConn) (uint32, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0, err
	}
	var info *unix.TCPInfo
	var failed error
	err = raw.Control(func(fd uintptr) { info, failed = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO) })
	if err := errors.Join(err, failed); err != nil {
		return 0, err
	}
	return info.Total_retrans, nil
}

// stop ends the stream and waits for the attempts that were begun. It may be called again.
func (s *stream) stop() {
	s.cancel()
	s.begin.Wait()
	s.wait.Wait()
}

// phase begins another phase: the attempts of each are counted.
func (s *stream) phase(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.phases = append(s.phases, &phase{name: fmt.Sprintf(format, args...)})
}

// pass waits for so many more attempts.
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

// mustNotFail stops the stream and reports what failed.
func (s *stream) mustNotFail() {
	s.t.Helper()
	s.stop()
	const enough = 10
	for i, failure := range s.failures {
		if i == enough {
			break
		}
		s.t.Error(failure)
	}
	for _, p := range s.phases {
		if p.attempts > 0 {
			s.t.Logf("%s: %d of %d attempts failed", p.name, p.fails, p.attempts)
		}
	}
}
