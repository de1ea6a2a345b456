package conntrack

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// passes records the passes of a Cleaner. Each takes the duration, and returns
// the error of answer.
type passes struct {
	mu     sync.Mutex // guards checks and at
	checks []check
	at     []time.Time
	takes  time.Duration
	answer func(n int) error
}

func (p *passes) clean(_ context.Context, todo *check) (Stats, error) {
	p.mu.Lock()
	p.checks = append(p.checks, *todo)
	p.at = append(p.at, time.Now())
	n := len(p.checks)
	p.mu.Unlock()
	time.Sleep(p.takes)
	if p.answer == nil {
		return Stats{}, nil
	}
	return Stats{}, p.answer(n)
}

// wantPasses compares the number of passes.
func (p *passes) wantPasses(t *testing.T, low, high int) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if got := len(p.checks); got < low || got > high {
		t.Errorf("got %d passes, want %d to %d", got, low, high)
	}
}

// runCleaner runs a Cleaner with a fake clock.
func runCleaner(t *testing.T, p *passes, config CleanerConfig, test func(t *testing.T, c *Cleaner)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := newCleaner(config, newFrontends(), p.clean)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- c.Run(ctx) }()
		test(t, c)
		cancel()
		if err := <-done; err != nil {
			t.Errorf("got Run error %v, want none", err)
		}
	})
}

// settle waits until the Cleaner has gathered changes and is blocked.
func settle() {
	time.Sleep(gatherDelay)
	synctest.Wait()
}

func change(frontend string, endpoints ...string) FrontendChange {
	return FrontendChange{Frontend: addrPort(frontend), Endpoints: addrPorts(endpoints...)}
}

func gone(frontend string) FrontendChange {
	return FrontendChange{Frontend: addrPort(frontend), Gone: true}
}

// removalOf returns a removal of a TCP endpoint.
func removalOf(endpoint string, frontends ...string) Removal {
	return Removal{
		Protocol: tcp, Endpoint: addrPort(endpoint), Done: func(int) {},
		Serves: func(f netip.AddrPort) bool { return slices.Contains(frontends, f.String()) },
	}
}

// Passes take a limited share of the time while changes continue: a fifth for
// frontends, and 2 % for removals of endpoints. The first passes come in
// addition, because the time before them counts as a pause. The second pass for
// a change is the first one for another.
func TestCleanerShare(t *testing.T) {
	update := func(c *Cleaner, _ int) { c.Update(gone("10.96.0.1:53")) }
	remove := func(c *Cleaner, i int) { c.Remove(removalOf(fmt.Sprintf("10.244.0.5:%d", 1+i))) }
	for name, tc := range map[string]struct {
		slow            bool
		change          func(*Cleaner, int)
		every, duration time.Duration
		takes           time.Duration
		low, high       int // passes
	}{
		"frontends":          {false, update, time.Millisecond, 10 * time.Second, 100 * time.Millisecond, 21, 22},
		"removals":           {true, remove, 100 * time.Millisecond, time.Minute, 10 * time.Millisecond, 5, 162},
		"removals, slow":     {true, remove, 100 * time.Millisecond, time.Minute, 200 * time.Millisecond, 5, 8},
		"longer than limits": {false, update, 10500 * time.Millisecond, 12 * time.Second, 10 * time.Second, 2, 2},
	} {
		t.Run(name, func(t *testing.T) {
			p := &passes{takes: tc.takes}
			runCleaner(t, p, CleanerConfig{Slow: tc.slow}, func(t *testing.T, c *Cleaner) {
				for i := range int(tc.duration / tc.every) {
					tc.change(c, i)
					time.Sleep(tc.every)
				}
				settle()
				p.wantPasses(t, tc.low, tc.high)
			})
		})
	}
}

// During continuous changes, each change is checked twice, the second time
// after the delay.
func TestCleanerCombinesSecondPasses(t *testing.T) {
	p := &passes{takes: 60 * time.Millisecond}
	runCleaner(t, p, CleanerConfig{}, func(t *testing.T, c *Cleaner) {
		changed := make(map[netip.AddrPort]time.Time)
		for i := range 1000 {
			frontend := netip.AddrPortFrom(numbered(10, i), 53)
			c.Update(FrontendChange{Frontend: frontend, Gone: true})
			changed[frontend] = time.Now()
			time.Sleep(10 * time.Millisecond)
		}
		first := 1 + int(changePause.limit/changePause.required(p.takes))
		p.wantPasses(t, 1, first+int(10*time.Second/(p.takes+changePause.required(p.takes))))
		time.Sleep(time.Hour)
		seen := make(map[netip.AddrPort][]time.Time)
		p.mu.Lock()
		defer p.mu.Unlock()
		for i, todo := range p.checks {
			for frontend := range maps.Keys(todo.gone) {
				seen[frontend.at] = append(seen[frontend.at], p.at[i])
			}
		}
		for frontend, at := range changed {
			times := seen[frontend]
			if len(times) != 2 {
				t.Fatalf("%v: got %d checks, want 2", frontend, len(times))
			}
			if d := times[1].Sub(at); d < recheckDelay || d > 5*recheckDelay {
				t.Errorf("%v: got a second check after %v, want one to five times %v", frontend, d, recheckDelay)
			}
		}
	})
}

// Passes for the endpoints of a lost node follow one another, and their
// connections end at once.
func TestCleanerAfterNodeLoss(t *testing.T) {
	const pass = 10 * time.Millisecond
	p := &passes{takes: pass}
	runCleaner(t, p, CleanerConfig{Slow: true}, func(t *testing.T, c *Cleaner) {
		for i := range 10 {
			c.Remove(removalOf(fmt.Sprintf("10.244.0.5:%d", 1+i)))
			time.Sleep(2 * pass)
			synctest.Wait()
			p.wantPasses(t, i+1, 1000)
		}
	})
}

// Update does not wait for a pass, and a pass ends with its context, without a
// report.
func TestCleanerUpdateDoesNotBlock(t *testing.T) {
	var reports atomic.Int32
	runCleaner(t, &passes{}, CleanerConfig{Report: func(Result) { reports.Add(1) }}, func(t *testing.T, c *Cleaner) {
		c.clean = func(ctx context.Context, _ *check) (Stats, error) {
			<-ctx.Done()
			return Stats{}, ctx.Err()
		}
		c.Update(change("10.96.0.1:53"))
		settle()
		c.Update(change("10.96.0.2:53"))
	})
	if reports.Load() != 0 {
		t.Errorf("got %d reports, want none for a canceled pass", reports.Load())
	}
}

// A change during a failed pass for the same frontend is not lost.
func TestCleanerKeepsNewerChange(t *testing.T) {
	p := &passes{}
	runCleaner(t, p, CleanerConfig{}, func(t *testing.T, c *Cleaner) {
		p.answer = func(n int) error {
			if n > 1 {
				return nil
			}
			c.Update(change("10.96.0.1:53", "10.244.0.6:53"))
			return errors.New("broken")
		}
		c.Update(change("10.96.0.1:53", "10.244.0.5:53"))
		time.Sleep(time.Hour)
		flow := newFlow(udp, "10.0.0.1:1", "10.96.0.1:53", "10.244.0.6:53")
		isLocal := func(netip.Addr) bool { return false }
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.checks[1].empty() || c.frontends.stale(flow, &p.checks[1], isLocal) {
			t.Errorf("got check %+v, want the frontend, and no stale flow to the new endpoint", p.checks[1])
		}
	})
}

// While passes fail, changes cause at most one attempt per second, and the
// recorded work takes a bounded amount of memory.
func TestCleanerIsBoundedWhilePassesFail(t *testing.T) {
	p := &passes{answer: func(int) error { return errors.New("broken") }}
	runCleaner(t, p, CleanerConfig{}, func(t *testing.T, c *Cleaner) {
		for i := range maxGone + 20_000 {
			change := FrontendChange{Frontend: netip.AddrPortFrom(numbered(10, i), 53), Gone: true, Owner: "many"}
			if c.Update(change); i == maxGone {
				change.Owner, change.Frontend = "one", netip.AddrPortFrom(numbered(11, 0), 53)
				c.Update(change)
			}
			if i%20 == 0 {
				time.Sleep(time.Millisecond)
			}
		}
		p.wantPasses(t, 2, 11)
	})
	last := p.checks[len(p.checks)-1]
	_, one := last.gone[keyOf(udp, netip.AddrPortFrom(numbered(11, 0), 53))]
	if len(last.gone) != maxGone/2+1 || !one || len(last.changed.ipv4.list) > maxNarrowDumps {
		t.Errorf("got %d recorded frontends and %d selections; want %d, including the other owner's, and at most %d",
			len(last.gone), len(last.changed.ipv4.list), maxGone/2+1, maxNarrowDumps)
	}
	var former addrSet
	for i := range maxGone + 1000 {
		former.addMissing(newAddrSet([]netip.Addr{numbered(10, i)}), nil)
	}
	if len(former) != maxGone {
		t.Errorf("got %d recorded addresses, want %d", len(former), maxGone)
	}
}
