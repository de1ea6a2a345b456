package conntrack

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// passes records what a Cleaner asks for, and answers what the test says.
type passes struct {
	changes [][]Change
	answer  func(n int) (Stats, error)
}

func (p *passes) clean(_ context.Context, changes []Change) (Stats, error) {
	p.changes = append(p.changes, changes)
	if p.answer == nil {
		return Stats{Dumps: 1}, nil
	}
	return p.answer(len(p.changes))
}

func sameChanges(a, b []Change) bool {
	return slices.EqualFunc(a, b, func(x, y Change) bool {
		return x.Frontend == y.Frontend && x.Gone == y.Gone && slices.Equal(x.Endpoints, y.Endpoints)
	})
}

// run runs a Cleaner in a bubble with a clock of its own.
func run(t *testing.T, p *passes, test func(c *Cleaner, results *[]Result)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		var results []Result
		c := newCleaner(p.clean, func(r Result) { results = append(results, r) })
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
		if len(p.changes) != 0 {
			t.Errorf("passes without changes: %v", p.changes)
		}
		c.Enqueue()
		c.Enqueue(change("10.96.0.2:53"), change("10.96.0.1:53", "10.244.0.5:53"))
		c.Enqueue(change("10.96.0.1:53", "10.244.0.6:53"), gone("[::ffff:10.96.0.2]:53"))
		settle()
		want := []Change{change("10.96.0.1:53", "10.244.0.6:53"), gone("10.96.0.2:53")}
		if len(p.changes) != 1 || !sameChanges(p.changes[0], want) {
			t.Errorf("got %v\nwant one pass for %v", p.changes, want)
		}
		if len(*results) != 1 || (*results)[0].Changes != 2 || (*results)[0].Dumps != 1 || (*results)[0].Err != nil {
			t.Errorf("reported %+v", *results)
		}
		time.Sleep(time.Hour)
		settle()
		if len(p.changes) != 1 {
			t.Errorf("a pass without a change: %v", p.changes[1:])
		}
	})
}

func TestCleanerTriesAgain(t *testing.T) {
	broken := errors.New("broken")
	p := &passes{answer: func(n int) (Stats, error) {
		if n <= 3 {
			return Stats{Deleted: 1}, broken
		}
		return Stats{}, nil
	}}
	run(t, p, func(c *Cleaner, results *[]Result) {
		c.Enqueue(change("10.96.0.1:53", "10.244.0.5:53"), change("10.96.0.2:53"))
		settle()
		// While the first pass waits to be made again, one of its changes is outdated.
		c.Enqueue(gone("10.96.0.1:53"))
		time.Sleep(time.Hour)
		settle()
		if len(p.changes) != 4 {
			t.Fatalf("%d passes, want 4: %v", len(p.changes), p.changes)
		}
		want := []Change{gone("10.96.0.1:53"), change("10.96.0.2:53")}
		for _, got := range p.changes[1:] {
			if !sameChanges(got, want) {
				t.Errorf("got %v, want %v", got, want)
			}
		}
		for i, r := range *results {
			if errors.Is(r.Err, broken) != (i < 3) {
				t.Errorf("pass %d: reported %v", i, r.Err)
			}
		}
	})
}

// A change that comes while a pass for the same frontend is under way, and fails, is not overwritten.
func TestCleanerKeepsTheNewerChange(t *testing.T) {
	p := &passes{}
	run(t, p, func(c *Cleaner, results *[]Result) {
		p.answer = func(n int) (Stats, error) {
			if n == 1 {
				c.Enqueue(gone("10.96.0.1:53"))
				return Stats{}, errors.New("broken")
			}
			return Stats{}, nil
		}
		c.Enqueue(change("10.96.0.1:53"))
		time.Sleep(time.Hour)
		settle()
		if len(p.changes) != 2 || !sameChanges(p.changes[1], []Change{gone("10.96.0.1:53")}) {
			t.Errorf("got %v", p.changes)
		}
	})
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
			c.Enqueue(change("10.96.0.1:53"))
			time.Sleep(time.Millisecond)
		}
		settle()
		if got, want := time.Duration(busy.Load()), 2*time.Second; got != want {
			t.Errorf("busy for %v of 10 s, want %v", got, want)
		}
	})
}

// Enqueue returns while a pass is under way, and a pass ends with its context.
func TestCleanerIsOffTheCallersPath(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var reports atomic.Int32
		c := newCleaner(func(ctx context.Context, _ []Change) (Stats, error) {
			<-ctx.Done()
			return Stats{}, ctx.Err()
		}, func(Result) { reports.Add(1) })
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- c.Run(ctx) }()
		c.Enqueue(change("10.96.0.1:53"))
		settle()
		c.Enqueue(change("10.96.0.2:53"))
		cancel()
		if err := <-done; err != nil || reports.Load() != 0 {
			t.Errorf("Run: %v, %d reports of a pass that was called off", err, reports.Load())
		}
	})
}

func TestCleanerNeedsAConn(t *testing.T) {
	if _, err := NewCleaner(CleanerConfig{}); err == nil {
		t.Error("no error")
	}
}

// The whole of it, on a kernel.
func TestCleanerDeletes(t *testing.T) {
	ns := newNamespace(t)
	stale := newFlow(udp, "10.0.0.1:4000", "10.96.0.10:53", "10.244.0.5:53")
	served := newFlow(udp, "10.0.0.2:4000", "10.96.0.10:53", "10.244.0.6:53")
	ns.injector(t).add(t, stale, served)
	results := make(chan Result, 1)
	c, err := NewCleaner(CleanerConfig{Conn: ns.open(t), Report: func(r Result) { results <- r }})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- c.Run(ctx) }()
	c.Enqueue(change("10.96.0.10:53", "10.244.0.6:53"))
	if r := <-results; r.Err != nil || r.Deleted != 1 || r.Changes != 1 {
		t.Errorf("%+v", r)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if got := list(t, ns.open(t)); !sameFlows(got, []Flow{served}) {
		t.Errorf("left: %v", got)
	}
}

// However long a pass took, the next change does not wait longer than maxRest.
func TestCleanerRestIsLimited(t *testing.T) {
	p := &passes{answer: func(int) (Stats, error) {
		time.Sleep(10 * time.Second)
		return Stats{}, nil
	}}
	run(t, p, func(c *Cleaner, results *[]Result) {
		c.Enqueue(change("10.96.0.1:53"))
		settle()
		time.Sleep(10 * time.Second)
		c.Enqueue(change("10.96.0.2:53"))
		time.Sleep(maxRest)
		settle()
		if len(p.changes) != 2 {
			t.Errorf("%d passes, want the second to begin %v after the first", len(p.changes), maxRest)
		}
	})
}
