package apiserver

import (
	"context"
	"fmt"
	"slices"
	"strings"
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
	cancel   context.CancelFunc
	begin    sync.WaitGroup // of run
	wait     sync.WaitGroup // of attempts
	attempts []attempt
	ended    atomic.Int64

	mu       sync.Mutex // guards failures and phases
	failures []string
	phases   []*phase // the last one is the current one
}

// phase counts the attempts that begin in a part of a test.
type phase struct {
	name            string
	attempts, fails int
}

// attempt is a connection that a stream repeats.
type attempt struct {
	from *lab.Namespace
	to   frontend.Frontend
	// guarded is set if it must not be answered.
	guarded bool
}

// streamEvery is the time between two attempts: 200 per second.
const streamEvery = 5 * time.Millisecond

// startStream starts a stream on these routes, in turn, until stop or the end
// of the test. Attempts on guarded routes must not be answered.
func startStream(t testing.TB, routes, guarded []route) *stream {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	out := &stream{cancel: cancel, phases: []*phase{{name: "stream"}}}
	for i, r := range slices.Concat(routes, guarded) {
		for _, to := range r.to {
			out.attempts = append(out.attempts, attempt{r.from, to, i >= len(routes)})
		}
	}
	out.begin.Go(func() { out.run(ctx) })
	t.Cleanup(out.stop)
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
		one := s.attempts[i%len(s.attempts)]
		s.mu.Lock()
		in := s.phases[len(s.phases)-1]
		in.attempts++
		s.mu.Unlock()
		s.wait.Go(func() {
			if err := one.make(); err != nil {
				s.mu.Lock()
				in.fails++
				at := time.Now().Format(time.TimeOnly)
				s.failures = append(s.failures, fmt.Sprintf("%s %s -> %v: %v", at, one.from.Name, one.to, err))
				s.mu.Unlock()
			}
			s.ended.Add(1)
		})
	}
}

// make connects once. It fails also if a packet was lost and repeated.
func (a attempt) make() error {
	if a.guarded {
		result := a.to.Probe(context.Background(), a.from, lab.ProbeOptions{Timeout: shortly})
		if result.Outcome != lab.TimedOut {
			return fmt.Errorf("got %v, want no answer", result)
		}
		return nil
	}
	options := lab.ProbeOptions{Timeout: answerTimeout}
	return lab.ConnectOnce(context.Background(), a.from, a.to.Network, a.to.To, options)
}

// stop ends the stream and waits for its attempts. It can be called more than
// once.
func (s *stream) stop() {
	s.cancel()
	s.begin.Wait()
	s.wait.Wait()
}

// phase begins another phase.
func (s *stream) phase(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.phases = append(s.phases, &phase{name: name})
}

// pass waits for n more attempts.
func (s *stream) pass(t testing.TB, n int64) {
	t.Helper()
	want := s.ended.Load() + n
	eventually(t, "stream", func() error {
		if ended := s.ended.Load(); ended < want {
			return fmt.Errorf("%d attempts, want %d", ended, want)
		}
		return nil
	})
}

// result stops the stream and returns the numbers of attempts, and an error if
// some failed.
func (s *stream) result() (string, error) {
	s.stop()
	var counts strings.Builder
	for _, p := range s.phases {
		if p.attempts > 0 {
			fmt.Fprintf(&counts, "%s: %d of %d attempts failed\n", p.name, p.fails, p.attempts)
		}
	}
	const most = 10
	if len(s.failures) > 0 {
		return "", fmt.Errorf("%s\n%s", strings.Join(s.failures[:min(most, len(s.failures))], "\n"), &counts)
	}
	return counts.String(), nil
}
