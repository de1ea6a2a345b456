package keep

import "time"

// A repair begins at once, unless another program keeps changing the table: two
// proxies must not fight for the same table without pause. From the second
// repair within calmTime on, the next repair waits, each time longer.
const calmTime = 5 * time.Second

// repairs determines when the table may be repaired, and counts repairs.
type repairs struct {
	last    time.Time
	foreign int           // link.seen at the last repair
	pause   time.Duration // after the last repair
	count   map[DamageKind]int
}

// wait returns how long to wait before the next repair.
func (r *repairs) wait(now time.Time) time.Duration { return max(0, r.pause-now.Sub(r.last)) }

// recent reports whether the last repair was a moment ago, and another program
// committed after it.
func (r *repairs) recent(now time.Time, foreign int) bool {
	return !r.last.IsZero() && now.Sub(r.last) < calmTime+r.pause && foreign != r.foreign
}

// add counts a repair that begins now. It reports whether another program
// changes the table repeatedly.
func (r *repairs) add(kind DamageKind, now time.Time, foreign int, l *Limits) (again bool) {
	again = r.recent(now, foreign)
	if again {
		r.pause = min(max(2*r.pause, l.FirstPause), l.LastPause)
	} else {
		r.pause = 0
	}
	r.last, r.foreign = now, foreign
	r.count[kind]++
	return again
}
