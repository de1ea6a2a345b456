package conntrack

import (
	"errors"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"
)

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
		// The failed pass waits for its retry meanwhile.
		c.Update(gone("10.96.0.3:53"))
		time.Sleep(time.Hour)
		settle()
		p.wantPasses(t, 5) // 3 fail, 1 succeeds, 1 is a second pass
		for _, todo := range p.checks[1:] {
			wantFrontends(t, todo, "10.96.0.1:53", "10.96.0.2:53", "10.96.0.3:53")
		}
		for i, r := range *results {
			if errors.Is(r.Err, broken) != (i < 3) {
				t.Errorf("pass %d: got error %v, want an error: %v", i, r.Err, i < 3)
			}
		}
	})
}

// A second pass is retried, too.
func TestCleanerRetriesSecondPass(t *testing.T) {
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
			t.Fatalf("got %d passes, want at least 3", len(p.checks))
		}
		wantFrontends(t, p.checks[2], "10.96.0.1:53")
	})
}

// A change during a failed pass for the same frontend is not lost.
func TestCleanerKeepsNewerChange(t *testing.T) {
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
			t.Error("got a stale flow to the new endpoint")
		}
	})
}

// While passes fail, changes cause at most one attempt per second, and the
// recorded work takes a bounded amount of memory.
func TestCleanerIsBoundedWhilePassesFail(t *testing.T) {
	p := &passes{answer: func(int) (Stats, error) { return Stats{}, errors.New("broken") }}
	run(t, p, func(c *Cleaner, results *[]Result) {
		for i := range 10_000 {
			for j := range 20 {
				a := netip.AddrFrom4([4]byte{10, byte(i >> 8), byte(i), byte(j)})
				c.Update(FrontendChange{Frontend: netip.AddrPortFrom(a, 53), Gone: true})
			}
			time.Sleep(time.Millisecond)
		}
		synctest.Wait()
		if n := len(p.checks); n > 11 {
			t.Errorf("got %d attempts within 10 s, want at most 11", n)
		}
	})
	last := p.checks[len(p.checks)-1]
	if n := len(last.gone); n != maxGone {
		t.Errorf("got %d recorded frontends, want %d", n, maxGone)
	}
	if n := len(last.changed.ipv4.list); n > maxNarrowDumps {
		t.Errorf("got %d selections, want at most %d", n, maxNarrowDumps)
	}
}
