package conntrack

import (
	"context"
	"maps"
	"net/netip"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// passes records the passes of a Cleaner, and returns the results of answer.
type passes struct {
	checks []check
	at     []time.Time
	answer func(n int) (Stats, error)
}

func (p *passes) clean(_ context.Context, todo *check) (Stats, error) {
	p.checks = append(p.checks, *todo)
	p.at = append(p.at, time.Now())
	if p.answer == nil {
		return Stats{Dumps: 1}, nil
	}
	return p.answer(len(p.checks))
}

// frontendsOf returns the IPv4 frontends of a check, in order.
func frontendsOf(c check) []string {
	var names []string
	for _, s := range c.changed.ipv4.sorted(maxNarrowDumps) {
		if !s.Addr.IsValid() {
			s.Addr = IPv4.Unspecified()
		}
		names = append(names, netip.AddrPortFrom(s.Addr, s.Port).String())
	}
	return names
}

func wantFrontends(t *testing.T, c check, want ...string) {
	t.Helper()
	if got := frontendsOf(c); !slices.Equal(got, want) {
		t.Errorf("got a pass for %v, want %v", got, want)
	}
}

// wantPasses compares the number of passes.
func (p *passes) wantPasses(t *testing.T, want int) {
	t.Helper()
	if got := len(p.checks); got != want {
		t.Fatalf("got %d passes, want %d: %+v", got, want, p.checks)
	}
}

// run runs a Cleaner in a bubble with a fake clock.
func run(t *testing.T, p *passes, test func(c *Cleaner, results *[]Result)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		var results []Result
		config := CleanerConfig{Report: func(r Result) { results = append(results, r) }}
		c := newCleaner(config, newFrontends(), p.clean)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- c.Run(ctx) }()
		test(c, &results)
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

func TestCleanerMergesChanges(t *testing.T) {
	p := &passes{}
	run(t, p, func(c *Cleaner, results *[]Result) {
		settle()
		p.wantPasses(t, 0)
		c.Update()
		c.Update(change("10.96.0.2:53"), change("10.96.0.1:53", "10.244.0.5:53"))
		c.Update(change("10.96.0.1:53", "10.244.0.6:53"), gone("[::ffff:10.96.0.2]:53"))
		settle()
		p.wantPasses(t, 1)
		wantFrontends(t, p.checks[0], "10.96.0.1:53", "10.96.0.2:53")
		if r := (*results)[0]; r.Changes != 4 || r.Rechecks != 0 || r.Dumps != 1 || r.Err != nil {
			t.Errorf("got %+v, want 4 changes, 1 dump", r)
		}
	})
}

// Each change is checked a second time, after one to two times the delay.
func TestCleanerChecksTwice(t *testing.T) {
	p := &passes{}
	run(t, p, func(c *Cleaner, results *[]Result) {
		c.SetNodeAddrs(IPv4, []netip.Addr{addr("192.0.2.1")})
		c.Update(gone("10.96.0.1:53"), change("0.0.0.0:30053"))
		time.Sleep(time.Hour)
		settle()
		p.wantPasses(t, 2)
		for _, todo := range p.checks {
			wantFrontends(t, todo, "0.0.0.0:30053", "10.96.0.1:53")
			if _, ok := todo.gone[addrPort("10.96.0.1:53")]; !ok {
				t.Errorf("got check %+v, want the frontend that is gone", todo)
			}
		}
		if d := p.at[1].Sub(p.at[0]); d < recheckDelay || d > 2*recheckDelay {
			t.Errorf("got a second pass after %v, want one to two times %v", d, recheckDelay)
		}
		if r := (*results)[1]; r.Changes != 0 || r.Rechecks != 2 {
			t.Errorf("got %+v, want 2 rechecks only", r)
		}
		c.SetNodeAddrs(IPv4, []netip.Addr{addr("192.0.2.2")})
		time.Sleep(time.Hour)
		settle()
		p.wantPasses(t, 4)
		for _, todo := range p.checks[2:] {
			wantFrontends(t, todo, "0.0.0.0:30053")
			if _, ok := todo.former[addr("192.0.2.1")]; !ok {
				t.Errorf("got check %+v, want the former address", todo)
			}
		}
	})
}

// A change that only adds endpoints needs no pass.
func TestCleanerIgnoresAddedEndpoints(t *testing.T) {
	p := &passes{}
	run(t, p, func(c *Cleaner, results *[]Result) {
		c.Update(change("10.96.0.1:53", "10.244.0.5:53"))
		time.Sleep(time.Hour)
		c.Update(change("10.96.0.1:53", "10.244.0.5:53", "10.244.0.6:53"))
		time.Sleep(time.Hour)
		settle()
		p.wantPasses(t, 2) // for the first change
	})
}

// During continuous changes, a second pass is combined with a first pass for
// other changes. Each change is checked twice, the second time after the
// delay, and there are no more passes than without second passes.
func TestCleanerCombinesSecondPasses(t *testing.T) {
	const duration = 60 * time.Millisecond
	p := &passes{answer: func(int) (Stats, error) {
		time.Sleep(duration)
		return Stats{}, nil
	}}
	run(t, p, func(c *Cleaner, results *[]Result) {
		changed := make(map[netip.AddrPort]time.Time)
		for i := range 1000 {
			frontend := netip.AddrPortFrom(numbered(10, i), 53)
			c.Update(FrontendChange{Frontend: frontend, Gone: true})
			changed[frontend] = time.Now()
			time.Sleep(10 * time.Millisecond)
		}
		end := time.Now()
		time.Sleep(time.Hour)
		settle()
		n := len(slices.DeleteFunc(slices.Clone(p.at), func(at time.Time) bool { return at.After(end) }))
		limit := 1 + int(10*time.Second/(duration+changePause.required(duration)))
		limit += int(changePause.limit / changePause.required(duration)) // the first passes
		if n > limit {
			t.Errorf("got %d passes within 10 s, want at most %d", n, limit)
		}
		seen := make(map[netip.AddrPort][]time.Time)
		for i, todo := range p.checks {
			for frontend := range maps.Keys(todo.gone) {
				seen[frontend] = append(seen[frontend], p.at[i])
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

// Update does not wait for a pass, and a pass ends with its context.
func TestCleanerUpdateDoesNotBlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var reports atomic.Int32
		config := CleanerConfig{Report: func(Result) { reports.Add(1) }}
		c := newCleaner(config, newFrontends(), func(ctx context.Context, _ *check) (Stats, error) {
			<-ctx.Done()
			return Stats{}, ctx.Err()
		})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- c.Run(ctx) }()
		c.Update(change("10.96.0.1:53"))
		settle()
		c.Update(change("10.96.0.2:53"))
		cancel()
		if err := <-done; err != nil || reports.Load() != 0 {
			t.Errorf("got Run error %v, %d reports, want none for a canceled pass", err, reports.Load())
		}
	})
}

// A Cleaner deletes a stale flow, and one that the kernel inserts after the
// first pass.
func TestCleanerDeletes(t *testing.T) {
	ns := newNamespace(t)
	stale := newFlow(udp, "10.0.0.1:4000", "10.96.0.10:53", "10.244.0.5:53")
	served := newFlow(udp, "10.0.0.2:4000", "10.96.0.10:53", "10.244.0.6:53")
	late := newFlow(udp, "10.0.0.3:4000", "10.96.0.10:53", "10.244.0.5:53")
	ns.injector(t).add(t, stale, served)
	results := make(chan Result, 2)
	c := ns.open(t).NewCleaner(CleanerConfig{
		Report: func(r Result) {
			if r.Changes > 0 {
				ns.injector(t).add(t, late)
			}
			results <- r
		},
	})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- c.Run(ctx) }()
	c.Update(change("10.96.0.10:53", "10.244.0.6:53"))
	for _, want := range []Result{{Changes: 1}, {Rechecks: 1}} {
		r := <-results
		if r.Err != nil || r.Deleted != 1 || r.Changes != want.Changes || r.Rechecks != want.Rechecks {
			t.Errorf("got %+v, want one deleted flow and %+v", r, want)
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Errorf("got Run error %v, want none", err)
	}
	wantFlows(t, ns.open(t), []trackedFlow{served})
}
