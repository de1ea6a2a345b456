package packet

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/test/lab"
)

// traffic are clients that keep connecting, one attempt after the other.
type traffic struct {
	t       testing.TB
	cancel  context.CancelFunc
	wait    sync.WaitGroup
	clients []*trafficClient
}

type trafficClient struct {
	*check
	ended  atomic.Int64 // attempts
	failed atomic.Int64
	mu     sync.Mutex // guards what follows
	first  string     // failure
	last   lab.Result
}

// attemptEvery is the pause between two attempts of a client. It leaves the processors to those who are to be tested.
const attemptEvery = 25 * time.Millisecond

// startTraffic lets clients connect to a service, over all its protocols and families, until the test ends at the latest. Paths are
// lines "FROM... -> TO...". An attempt fails when it is not answered within the timeout.
func (c *cluster) startTraffic(t testing.TB, s *service, paths string, timeout time.Duration) *traffic {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	w := &traffic{t: t, cancel: cancel}
	var lines strings.Builder
	for line := range strings.Lines(paths) {
		if strings.TrimSpace(line) != "" {
			// What is wanted is said by mustNotFail and others.
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
		// An attempt that was begun is not given up: what becomes of it counts.
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
		time.Sleep(attemptEvery)
	}
}

// stop ends the traffic. It may be called again.
func (w *traffic) stop() {
	w.cancel()
	w.wait.Wait()
}

// pass waits until every attempt that is under way has ended, and at least n more of each client.
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

// mustNotFail stops the traffic and reports attempts that failed.
func (w *traffic) mustNotFail() {
	w.t.Helper()
	w.stop()
	total := int64(0)
	for _, c := range w.clients {
		total += c.ended.Load()
		if n := c.failed.Load(); n > 0 {
			w.t.Errorf("%v %s -> %v: %d of %d attempts failed; first: %s", c.origin.Name, c.network, c.to, n, c.ended.Load(), c.first)
		}
	}
	w.t.Logf("%d attempts of %d clients", total, len(w.clients))
}

// awaitRecovery waits until every client's attempts are answered again, several times in a row.
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
				time.Sleep(pollEvery)
			}
			if c.failed.Load() > failed {
				return fmt.Errorf("attempts fail")
			}
			return nil
		})
	}
}
