package packet

import (
	"context"
	"flag"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/test/lab"
)

// traffic is clients that connect again and again.
type traffic struct {
	t       testing.TB
	began   time.Time
	cancel  context.CancelFunc
	wait    sync.WaitGroup
	clients []*trafficClient
}

type trafficClient struct {
	*check
	ended  atomic.Int64 // attempts that ended
	failed atomic.Int64
	mu     sync.Mutex // guards first and last
	first  string     // failed attempt
	last   lab.Result
}

var attemptEvery = flag.Duration("attempt-every", 25*time.Millisecond,
	"Pause between two attempts of a client, which leaves processor time for the proxies.")

// startTraffic starts clients that connect to a service until stop or the end
// of the test, over all its protocols and families. Paths are lines "FROM...
// -> TO...". An attempt fails if it is not answered within the timeout.
func (c *cluster) startTraffic(t testing.TB, s *service, paths string, timeout time.Duration) *traffic {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	w := &traffic{t: t, began: time.Now(), cancel: cancel}
	var lines strings.Builder
	for line := range strings.Lines(paths) {
		if strings.TrimSpace(line) != "" {
			// The outcome is ignored.
			fmt.Fprintf(&lines, "%s => refused\n", strings.TrimSpace(line))
		}
	}
	for _, k := range c.checks(s, lines.String()) {
		client := &trafficClient{check: k}
		w.clients = append(w.clients, client)
		w.wait.Go(func() { client.connect(ctx, timeout) })
	}
	t.Cleanup(w.stop)
	return w
}

func (c *trafficClient) connect(ctx context.Context, timeout time.Duration) {
	for ctx.Err() == nil {
		// The end of the traffic does not interrupt an attempt.
		result := c.probe(context.Background(), lab.ProbeOptions{Timeout: timeout})
		c.mu.Lock()
		c.last = result
		if result.Outcome != lab.Answered {
			c.failed.Add(1)
			if c.first == "" {
				c.first = fmt.Sprintf("attempt %d: %v", c.ended.Load()+1, result)
			}
		}
		c.mu.Unlock()
		c.ended.Add(1)
		time.Sleep(*attemptEvery)
	}
}

// stop ends the traffic. It can be called more than once.
func (w *traffic) stop() {
	w.cancel()
	w.wait.Wait()
}

// pass waits until all current attempts have ended, and n more of each
// client.
func (w *traffic) pass(n int64) {
	w.t.Helper()
	want := make([]int64, len(w.clients))
	for i, c := range w.clients {
		want[i] = c.ended.Load() + 1 + n
	}
	for i, c := range w.clients {
		eventually(w.t, c.describe, func() error {
			if ended := c.ended.Load(); ended < want[i] {
				return fmt.Errorf("%d attempts, want %d", ended, want[i])
			}
			return nil
		})
	}
}

// mustNotFail stops the traffic and reports failed attempts.
func (w *traffic) mustNotFail() {
	w.t.Helper()
	w.stop()
	total := int64(0)
	for _, c := range w.clients {
		total += c.ended.Load()
		if n := c.failed.Load(); n > 0 {
			w.t.Errorf("%v %s -> %v: %d of %d attempts failed; first: %s",
				c.origin.Name, c.network, c.to, n, c.ended.Load(), c.first)
		}
	}
	w.t.Logf("%d attempts of %d clients, %.0f per second",
		total, len(w.clients), float64(total)/time.Since(w.began).Seconds())
}

// awaitRecovery waits until several attempts of each client in a row succeed.
func (w *traffic) awaitRecovery() {
	w.t.Helper()
	for _, c := range w.clients {
		eventually(w.t, "recovery of "+c.describe, func() error {
			failed := c.failed.Load()
			c.mu.Lock()
			last := c.last
			c.mu.Unlock()
			if last.Outcome != lab.Answered {
				return fmt.Errorf("%v", last)
			}
			for want := c.ended.Load() + 5; c.ended.Load() < want; {
				time.Sleep(*attemptEvery)
			}
			if c.failed.Load() > failed {
				return fmt.Errorf("attempts fail")
			}
			return nil
		})
	}
}
