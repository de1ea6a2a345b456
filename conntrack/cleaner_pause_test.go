package conntrack

import (
	"sync/atomic"
	"testing"
	"time"
)

// During continuous changes, passes take a fifth of the time. The pause before
// the first pass counts, so there is one more.
func TestCleanerPauses(t *testing.T) {
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
		if got, want := time.Duration(busy.Load()), 2100*time.Millisecond; got != want {
			t.Errorf("got passes for %v of 10 s, want %v", got, want)
		}
	})
}

// However long a pass takes, the next change waits for at most the limit.
func TestCleanerPauseIsLimited(t *testing.T) {
	p := &passes{answer: func(int) (Stats, error) {
		time.Sleep(10 * time.Second)
		return Stats{}, nil
	}}
	run(t, p, func(c *Cleaner, results *[]Result) {
		c.Update(change("10.96.0.1:53"))
		settle()
		time.Sleep(10 * time.Second)
		c.Update(change("10.96.0.2:53"))
		time.Sleep(changePause.limit)
		settle()
		p.wantPasses(t, 2)
	})
}
