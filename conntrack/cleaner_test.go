package conntrack

import (
	"context"
	"errors"
	"maps"
	"net/netip"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// passes records the passes of a Cleaner, and answers them as a test wants.
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
	for _, dst := range slices.SortedFunc(slices.Values(c.ipv4.dsts.values), netip.AddrPort.Compare) {
		names = append(names, dst.String())
	}
	return names
}

func wantFrontends(t *testing.T, c check, want ...string) {
	t.Helper()
	if got := frontendsOf(c); !slices.Equal(got, want) {
		t.Errorf("a pass for %v, want %v", got, want)
	}
}

// run runs a Cleaner in a bubble with a clock of its own.
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
			t.Errorf("Run: %v", err)
		}
	})
}

// settle waits until the Cleaner has gathered changes, and works or sleeps.
func settle() {
	time.Sleep(gatherDelay)
	synctest.Wait()
}

func TestCleanerMergesChanges(t *testing.T) {
	p := &passes{}
	run(t, p, func(c *Cleaner, results *[]Result) {
		settle()
		if len(p.checks) != 0 {
			t.Errorf("passes without changes: %v", p.checks)
		}
		c.Update()
		c.Update(change("10.96.0.2:53"), change("10.96.0.1:53", "10.244.0.5:53"))
		c.Update(change("10.96.0.1:53", "10.244.0.6:53"), gone("[::ffff:10.96.0.2]:53"))
		settle()
		if len(p.checks) != 1 {
			t.Fatalf("%d passes, want one", len(p.checks))
		}
		wantFrontends(t, p.checks[0], "10.96.0.1:53", "10.96.0.2:53")
		if r := (*results)[0]; r.Changes != 4 || r.Rechecks != 0 || r.Dumps != 1 || r.Err != nil {
			t.Errorf("reported %+v", r)
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
		if len(p.checks) != 2 {
			t.Fatalf("%d passes, want two", len(p.checks))
		}
		for _, todo := range p.checks {
			wantFrontends(t, todo, "0.0.0.0:30053", "10.96.0.1:53")
			if _, ok := todo.ipv4.gone[addrPort("10.96.0.1:53")]; !ok {
				t.Errorf("a pass without the frontend that is gone: %+v", todo)
			}
		}
		if d := p.at[1].Sub(p.at[0]); d < DefaultRecheckDelay || d > 2*DefaultRecheckDelay {
			t.Errorf("the second pass followed after %v", d)
		}
		if r := (*results)[1]; r.Changes != 0 || r.Rechecks != 2 {
			t.Errorf("reported %+v", r)
		}
		c.SetNodeAddrs(IPv4, []netip.Addr{addr("192.0.2.2")})
		time.Sleep(time.Hour)
		settle()
		if len(p.checks) != 4 {
			t.Fatalf("%d passes, want four", len(p.checks))
		}
		for _, todo := range p.checks[2:] {
			wantFrontends(t, todo, "0.0.0.0:30053")
			if _, ok := todo.ipv4.former.addrs[addr("192.0.2.1")]; !ok {
				t.Errorf("a pass without the former address: %+v", todo)
			}
		}
	})
}

// A change whose endpoints all stay needs no pass.
func TestCleanerIgnoresMoreEndpoints(t *testing.T) {
	p := &passes{}
	run(t, p, func(c *Cleaner, results *[]Result) {
		c.Update(change("10.96.0.1:53", "10.244.0.5:53"))
		time.Sleep(time.Hour)
		c.Update(change("10.96.0.1:53", "10.244.0.5:53", "10.244.0.6:53"))
		time.Sleep(time.Hour)
		settle()
		if len(p.checks) != 2 {
			t.Errorf("%d passes, want the two of the first change", len(p.checks))
		}
	})
}

// While changes keep coming, second passes are made together with first ones:
// each change is checked twice, the second time not before the delay, and there
// are no more passes than without second ones.
func TestCleanerCombinesSecondPasses(t *testing.T) {
	const duration = 60 * time.Millisecond
	p := &passes{answer: func(int) (Stats, error) {
		time.Sleep(duration)
		return Stats{}, nil
	}}
	run(t, p, func(c *Cleaner, results *[]Result) {
		changed := make(map[netip.AddrPort]time.Time)
		for i := range 1000 {
			frontend := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 97, byte(i >> 8), byte(i)}), 53)
			c.Update(Change{Frontend: frontend, Gone: true})
			changed[frontend] = time.Now()
			time.Sleep(10 * time.Millisecond)
		}
		end := time.Now()
		time.Sleep(time.Hour)
		settle()
		n := len(slices.DeleteFunc(slices.Clone(p.at), func(at time.Time) bool { return at.After(end) }))
		if limit := int(10*time.Second/(duration+restFactor*duration)) + 1; n > limit {
			t.Errorf("%d passes within 10 s, want at most %d", n, limit)
		}
		seen := make(map[netip.AddrPort][]time.Time)
		for i, todo := range p.checks {
			for frontend := range maps.Keys(todo.ipv4.gone) {
				seen[frontend] = append(seen[frontend], p.at[i])
			}
		}
		for frontend, at := range changed {
			times := seen[frontend]
			if len(times) != 2 {
				t.Fatalf("%v was checked %d times", frontend, len(times))
			}
			if d := times[1].Sub(at); d < DefaultRecheckDelay || d > 5*DefaultRecheckDelay {
				t.Errorf("%v was checked again after %v", frontend, d)
			}
		}
	})
}

func TestCleanerRetries(t *testing.T) {
	broken := errors.New("broken")
	p := &passes{answer: func(n int) (Stats, error) {
		if n <= 3 {
			return Stats{Deleted: 1}, broken
		}
		return Stats{}, nil
	}}
	run(t, p, func(c *Cleaner, results *[]Result) {
		c.Update(change("10.96.0.1:53", "10.244.0.5:53"), change("10.96.0.2:53"))
		settle()
		// The first pass waits for its retry meanwhile.
		c.Update(gone("10.96.0.3:53"))
		time.Sleep(time.Hour)
		settle()
		if len(p.checks) != 5 {
			t.Fatalf("%d passes, want 4 and a second one: %v", len(p.checks), p.checks)
		}
		for _, todo := range p.checks[1:] {
			wantFrontends(t, todo, "10.96.0.1:53", "10.96.0.2:53", "10.96.0.3:53")
		}
		for i, r := range *results {
			if errors.Is(r.Err, broken) != (i < 3) {
				t.Errorf("pass %d: reported %v", i, r.Err)
			}
		}
	})
}

// A second pass is retried, too.
func TestCleanerRetriesTheSecondPass(t *testing.T) {
	p := &passes{answer: func(n int) (Stats, error) {
		if n == 2 {
			return Stats{}, errors.New("broken")
		}
		return Stats{}, nil
	}}
	run(t, p, func(c *Cleaner, results *[]Result) {
		c.Update(gone("10.96.0.1:53"))
		time.Sleep(time.Hour)
		settle()
		if len(p.checks) < 3 {
			t.Fatalf("%d passes, want a third", len(p.checks))
		}
		wantFrontends(t, p.checks[2], "10.96.0.1:53")
	})
}

// A change during a pass for the same frontend that fails is not lost.
func TestCleanerKeepsTheNewerChange(t *testing.T) {
	p := &passes{}
	run(t, p, func(c *Cleaner, results *[]Result) {
		p.answer = func(n int) (Stats, error) {
			if n == 1 {
				c.Update(change("10.96.0.1:53", "10.244.0.6:53"))
				return Stats{}, errors.New("broken")
			}
			return Stats{}, nil
		}
		c.Update(change("10.96.0.1:53", "10.244.0.5:53"))
		time.Sleep(time.Hour)
		settle()
		wantFrontends(t, p.checks[1], "10.96.0.1:53")
		flow := newFlow(udp, "10.0.0.1:1", "10.96.0.1:53", "10.244.0.6:53")
		if c.frontends.stale(flow, &p.checks[1], local()) {
			t.Error("the retry deletes flows to the new endpoint")
		}
	})
}

// While passes fail, changes cause at most one attempt per second, and what is
// to be checked takes a bounded amount of memory.
func TestCleanerIsBoundedWhilePassesFail(t *testing.T) {
	p := &passes{answer: func(int) (Stats, error) { return Stats{}, errors.New("broken") }}
	run(t, p, func(c *Cleaner, results *[]Result) {
		for i := range 10_000 {
			for j := range 20 {
				a := netip.AddrFrom4([4]byte{10, byte(i >> 8), byte(i), byte(j)})
				c.Update(Change{Frontend: netip.AddrPortFrom(a, 53), Gone: true})
			}
			time.Sleep(time.Millisecond)
		}
		synctest.Wait()
		if n := len(p.checks); n > 11 {
			t.Errorf("%d attempts within 10 s", n)
		}
	})
	last := p.checks[len(p.checks)-1].ipv4
	if n := len(last.gone); n != maxGone {
		t.Errorf("%d frontends are remembered, want %d", n, maxGone)
	}
	if len(last.dsts.values) > maxNarrowDumps || len(last.ports.values) > maxNarrowDumps {
		t.Errorf("destinations and ports: %v, %v", last.dsts, last.ports)
	}
}

func TestAddrSetIsBounded(t *testing.T) {
	var former addrSet
	for i := range maxGone + 1000 {
		a := netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)})
		former.addMissing(newAddrSet([]netip.Addr{a}), addrSet{})
	}
	if len(former.addrs) != maxGone {
		t.Errorf("%d addresses are remembered, want %d", len(former.addrs), maxGone)
	}
}

// However fast changes come, passes take a fifth of the time.
func TestCleanerRests(t *testing.T) {
	var busy atomic.Int64
	p := &passes{answer: func(int) (Stats, error) {
		time.Sleep(100 * time.Millisecond)
		busy.Add(int64(100 * time.Millisecond))
		return Stats{}, nil
	}}
	run(t, p, func(c *Cleaner, results *[]Result) {
		for range 10_000 {
			c.Update(gone("10.96.0.1:53"))
			time.Sleep(time.Millisecond)
		}
		settle()
		if got, want := time.Duration(busy.Load()), 2*time.Second; got != want {
			t.Errorf("busy for %v of 10 s, want %v", got, want)
		}
	})
}

// Update returns while a pass is under way, and a pass ends with its context.
func TestCleanerDoesNotBlockItsCaller(t *testing.T) {
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
			t.Errorf("Run: %v, %d reports of a pass that was canceled", err, reports.Load())
		}
	})
}

func TestCleanerConfig(t *testing.T) {
	if _, err := NewCleaner(CleanerConfig{}); err == nil {
		t.Error("no error without a Conn")
	}
	if _, err := NewCleaner(CleanerConfig{Conn: &Conn{}, RecheckDelay: -1}); err == nil {
		t.Error("no error for a negative delay")
	}
}

// A Cleaner on a kernel deletes a stale flow, and one that the kernel inserts
// after the first pass.
func TestCleanerDeletes(t *testing.T) {
	ns := newNamespace(t)
	stale := newFlow(udp, "10.0.0.1:4000", "10.96.0.10:53", "10.244.0.5:53")
	served := newFlow(udp, "10.0.0.2:4000", "10.96.0.10:53", "10.244.0.6:53")
	late := newFlow(udp, "10.0.0.3:4000", "10.96.0.10:53", "10.244.0.5:53")
	ns.injector(t).add(t, stale, served)
	results := make(chan Result, 2)
	c, err := NewCleaner(CleanerConfig{
		Conn: ns.open(t), RecheckDelay: time.Millisecond, Report: func(r Result) {
			if r.Changes > 0 {
				ns.injector(t).add(t, late)
			}
			results <- r
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- c.Run(ctx) }()
	c.Update(change("10.96.0.10:53", "10.244.0.6:53"))
	for _, want := range []Result{{Changes: 1}, {Rechecks: 1}} {
		r := <-results
		if r.Err != nil || r.Deleted != 1 || r.Changes != want.Changes || r.Rechecks != want.Rechecks {
			t.Errorf("%+v, want one deleted and %+v", r, want)
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if got := list(t, ns.open(t)); !sameFlows(got, []Flow{served}) {
		t.Errorf("left: %v", got)
	}
}

// However long a pass took, the next change waits for at most maxRest.
func TestCleanerRestIsLimited(t *testing.T) {
	p := &passes{answer: func(int) (Stats, error) {
		time.Sleep(10 * time.Second)
		return Stats{}, nil
	}}
	run(t, p, func(c *Cleaner, results *[]Result) {
		c.Update(change("10.96.0.1:53"))
		settle()
		time.Sleep(10 * time.Second)
		c.Update(change("10.96.0.2:53"))
		time.Sleep(maxRest)
		settle()
		if len(p.checks) != 2 {
			t.Errorf("%d passes, want the second to begin %v after the first", len(p.checks), maxRest)
		}
	})
}
