package tour

import (
	"context"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"github.com/nftproxy/nftproxy/test/lab"
)

// line is a client that keeps connecting to one address.
type line struct {
	from string
	to   netip.AddrPort
}

// attempt is one connection of a line.
type attempt struct {
	line       int // which one
	start, end time.Time
	outcome    lab.Outcome
	server     string // who answered
}

// stream is a number of lines at work: each begins a connection every period, whatever became of those before.
type stream struct {
	lines  int
	cancel context.CancelFunc
	done   sync.WaitGroup

	mu       sync.Mutex
	attempts []attempt // in order of their ends
}

// streamOptions say how lines connect.
type streamOptions struct {
	period  time.Duration
	timeout time.Duration // of an attempt
}

// steady is for lines none of whose connections should get lost.
func steady() streamOptions {
	return streamOptions{period: 4 * time.Millisecond, timeout: lab.DefaultTimeout}
}

// startStream makes the lines begin. The caller must end it.
func (t *tour) startStream(ctx context.Context, lines []line, options streamOptions) (*stream, error) {
	hosts := make([]*lab.Namespace, len(lines))
	for i, l := range lines {
		var err error
		if hosts[i], err = t.stage.Host(l.from); err != nil {
			return nil, err
		}
	}
	attempts := ctx // those under way at the end of the stream are brought to their end
	ctx, cancel := context.WithCancel(ctx)
	s := &stream{lines: len(lines), cancel: cancel}
	for i, l := range lines {
		s.done.Go(func() {
			tick := time.NewTicker(options.period)
			defer tick.Stop()
			for ctx.Err() == nil {
				select {
				case <-ctx.Done():
				case <-tick.C:
					t.connections.Add(1)
					s.done.Go(func() { s.connect(attempts, i, hosts[i], l.to, options.timeout) })
				}
			}
		})
	}
	return s, nil
}

// connect makes one attempt.
func (s *stream) connect(ctx context.Context, number int, from *lab.Namespace, to netip.AddrPort, timeout time.Duration) {
	a := attempt{line: number, start: time.Now()}
	result := lab.Probe(ctx, from, "tcp", to, lab.ProbeOptions{Timeout: timeout})
	a.end, a.outcome, a.server = time.Now(), result.Outcome, result.Answer.Server
	s.mu.Lock()
	defer s.mu.Unlock()
	s.attempts = append(s.attempts, a)
}

// end stops the lines, waits for attempts under way, and returns all of them. It is safe to call again.
func (s *stream) end() []attempt {
	s.cancel()
	s.done.Wait()
	return s.sofar()
}

// sofar returns the attempts that have ended.
func (s *stream) sofar() []attempt {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.attempts[:len(s.attempts):len(s.attempts)]
}

// effectTimeout is how long anything that a scene does may take to have its effect.
const effectTimeout = 20 * time.Second

// await returns when the attempts show what was to happen; the error names it.
func (s *stream) await(ctx context.Context, what string, happened func([]attempt) bool) error {
	ctx, cancel := context.WithTimeoutCause(ctx, effectTimeout, fmt.Errorf("still not so after %v: %s", effectTimeout, what))
	defer cancel()
	const pause = 10 * time.Millisecond
	for !happened(s.sofar()) {
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// settle is how many connections of each line are waited for, to see what holds after a change: with five endpoints, that
// one of them is not chosen by chance by four lines happens once in 10^20 times.
const settle = 50

// awaitMore lets every line make some more connections.
func (s *stream) awaitMore(ctx context.Context) error {
	begin := time.Now()
	return s.await(ctx, fmt.Sprintf("%d connections of each client", settle), func(all []attempt) bool {
		counts := make([]int, s.lines)
		for _, a := range all {
			if a.start.After(begin) {
				counts[a.line]++
			}
		}
		return atLeast(counts, settle)
	})
}

// atLeast tells whether all counts are that high.
func atLeast(counts []int, least int) bool {
	for _, c := range counts {
		if c < least {
			return false
		}
	}
	return true
}
