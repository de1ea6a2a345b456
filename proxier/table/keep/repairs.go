package keep

import "time"

// The structure of a table is repaired at once, however often another program
// damages it, as long as this takes at most 1/repairShare of a core. Rows are
// repaired, and everything is written, at once, too, unless that is a large
// repair and another program damages the table again and again: from the second
// time within calmTime on, the next one waits, each time longer, so that two
// proxies do not fight for the table at full speed.
const (
	calmTime    = 5 * time.Second
	repairShare = 20
)

// repairs determines when the table may be repaired, and counts repairs.
type repairs struct {
	last    time.Time
	foreign int  // link.seen at the last repair
	again   bool // another program damages the table repeatedly
	count   map[DamageKind]int

	// debt is the CPU time of repairs of the structure until charged, less the
	// share of the time that has passed.
	debt    time.Duration
	charged time.Time

	cost     time.Duration // CPU time of the last repair apart from the structure
	pause    time.Duration // after the last large repair
	paused   time.Time     // when it ended
	isGone   bool          // everything must be written, after the pause
	logged   time.Time
	unlogged int // repairs since then
}

// wait returns how long to wait before the next repair of the structure.
func (r *repairs) wait(now time.Time, l *Limits) time.Duration {
	return max(0, max(0, r.debt-l.FreeRepair)*repairShare-now.Sub(r.charged))
}

// waitRows returns how long to wait before rows are repaired, or everything is
// written.
func (r *repairs) waitRows(now time.Time) time.Duration { return max(0, r.pause-now.Sub(r.paused)) }

// recent reports whether the last repair was a moment ago, and another program
// committed after it.
func (r *repairs) recent(now time.Time, foreign int) bool {
	return !r.last.IsZero() && now.Sub(r.last) < calmTime+r.pause && foreign != r.foreign
}

// add counts a repair that begins now. It reports whether another program
// changes the table repeatedly.
func (r *repairs) add(kind DamageKind, now time.Time, foreign int) (again bool) {
	if r.again = r.recent(now, foreign); !r.again {
		r.pause = 0
	}
	r.last, r.foreign, r.cost, r.isGone = now, foreign, 0, false
	r.count[kind]++
	return r.again
}

// charge records the CPU time of a repair of the structure.
func (r *repairs) charge(used time.Duration, now time.Time) {
	r.debt = max(0, r.debt-now.Sub(r.charged)/repairShare) + used
	r.charged = now
}

// chargeRows adds CPU time to the cost of the last repair.
func (r *repairs) chargeRows(used time.Duration, now time.Time, l *Limits) {
	wasSmall := r.cost <= l.FreeRepair
	if r.cost += used; r.cost <= l.FreeRepair || !r.again {
		return
	}
	if r.paused = now; wasSmall {
		r.pause = min(max(2*r.pause, l.FirstPause), l.LastPause)
	}
}

// logs reports whether a repair is logged: one in a second is.
func (r *repairs) logs(now time.Time) bool {
	if now.Sub(r.logged) < time.Second {
		r.unlogged++
		return false
	}
	r.logged = now
	return true
}
