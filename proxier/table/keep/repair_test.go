package keep

import (
	"fmt"
	"testing"
	"time"
)

// The first repair does not wait. If another program changes the table
// repeatedly, the repairs wait longer and longer, up to a limit, until the
// changes end.
func TestPauseOfRepairs(t *testing.T) {
	r := repairs{count: make(map[DamageKind]int)}
	limits := DefaultLimits()
	now, foreign := time.Unix(1000, 0), 1
	add := func(name string, wantAgain bool, wantWait time.Duration) {
		t.Helper()
		again := r.add(DamagedTable, now, foreign, &limits)
		if wait := r.wait(now); again != wantAgain || wait != wantWait {
			t.Errorf("%s: got again %v, wait %v; want %v, %v", name, again, wait, wantAgain, wantWait)
		}
	}
	if wait := r.wait(now); wait != 0 {
		t.Errorf("before the first repair: got wait %v, want 0s", wait)
	}
	add("first repair", false, 0)
	for i, ms := range []time.Duration{250, 500, 1000, 2000, 4000, 8000, 10000, 10000} {
		now = now.Add(r.wait(now) + 50*time.Millisecond)
		foreign++
		add(fmt.Sprintf("repair %d", i+2), true, ms*time.Millisecond)
	}
	now = now.Add(r.wait(now))
	add("no other program committed since the last repair", false, 0)
	r.pause = limits.LastPause
	now = now.Add(limits.LastPause + calmTime)
	foreign++
	add("the last repair was long ago", false, 0)
}
