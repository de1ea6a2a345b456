package keep

import (
	"fmt"
	"testing"
	"time"
)

// The first repair does not wait. If another program changes the table
// repeatedly, large repairs wait longer and longer, up to a limit, until the
// changes end. Repairs of the structure do not.
func TestPauseOfLargeRepairs(t *testing.T) {
	r := repairs{count: make(map[DamageKind]int)}
	limits := DefaultLimits()
	now, foreign := time.Unix(1000, 0), 1
	add := func(name string, wantAgain bool, wantWait time.Duration) {
		t.Helper()
		again := r.add(DamagedTable, now, foreign)
		r.chargeRows(limits.FreeRepair, now, &limits) // in two steps
		r.chargeRows(time.Millisecond, now, &limits)
		if wait := r.waitRows(now); again != wantAgain || wait != wantWait || r.wait(now, &limits) > 0 {
			t.Errorf("%s: got again %v, wait %v; want %v, %v", name, again, wait, wantAgain, wantWait)
		}
	}
	if wait := r.waitRows(now); wait != 0 {
		t.Errorf("before the first repair: got wait %v, want 0s", wait)
	}
	add("first repair", false, 0)
	for i, ms := range []time.Duration{250, 500, 1000, 2000, 4000, 8000, 10000, 10000} {
		now = now.Add(r.waitRows(now) + 50*time.Millisecond)
		foreign++
		add(fmt.Sprintf("repair %d", i+2), true, ms*time.Millisecond)
	}
	now = now.Add(r.waitRows(now))
	add("no other program committed since the last repair", false, 0)
	now = now.Add(limits.LastPause + calmTime)
	foreign++
	add("the last repair was long ago", false, 0)
	foreign++
	r.add(DamagedRows, now, foreign)
	if r.chargeRows(limits.FreeRepair, now, &limits); r.waitRows(now) > 0 {
		t.Error("a small repair is followed by a pause")
	}
}

// Repairs of the structure do not wait, unless they take more than their share
// of the CPU time.
func TestPauseOfSmallRepairs(t *testing.T) {
	r := repairs{count: make(map[DamageKind]int)}
	limits := DefaultLimits()
	begin := time.Unix(1000, 0)
	now, cost := begin, 5*time.Millisecond
	for foreign := range 1000 {
		r.charge(cost, now)
		wait := r.wait(now, &limits)
		if foreign < 20 && wait > 0 {
			t.Errorf("repair %d waits for %v", foreign, wait)
		}
		now = now.Add(max(time.Millisecond, wait))
	}
	used, most := 1000*cost, now.Sub(begin)/repairShare+repairBurst*limits.FreeRepair+cost
	if used > most || used < most/2 {
		t.Errorf("got %v of CPU time in %v, want at most %v", used, now.Sub(begin), most)
	}
}

// One repair in a second is logged.
func TestLoggedRepairs(t *testing.T) {
	var r repairs
	now, logged := time.Unix(1000, 0), 0
	for range 100 {
		if r.logs(now) {
			logged++
		}
		now = now.Add(100 * time.Millisecond)
	}
	if logged != 10 || r.unlogged != 90 {
		t.Errorf("got %d logged repairs, %d others; want 10, 90", logged, r.unlogged)
	}
}
