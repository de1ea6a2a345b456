package keep

import "time"

// A small repair begins at once, however often another program damages the
// table: two proxies then cost at most 1/repairShare of a core. From the second
// large repair within calmTime on, the next one waits, each time longer, so
// that two proxies do not fight for the table at full speed.
const (
	calmTime    = 5 * time.Second
	repairShare = 20
)

// repairs determines when the table may be repaired, and counts repairs.
type repairs struct {
	last    time.Time
	foreign int  // link.seen at the last repair
	again   bool // another program damages the table repeatedly
	pause   time.Duration
	backoff time.Duration // pause after the last large repair
	cost    time.Duration // CPU time of the last repair
	debt    time.Duration // CPU time of all repairs until charged, less the share of the time that has passed
	charged time.Time
	count   map[DamageKind]int

	logged time.Time
	quiet  int // repairs since then that were not logged
}

// wait returns how long to wait before the next repair.
func (r *repairs) wait(now time.Time) time.Duration { return max(0, r.pause-now.Sub(r.charged)) }

// recent reports whether the last repair was a moment ago, and another program
// committed after it.
func (r *repairs) recent(now time.Time, foreign int) bool {
	return !r.last.IsZero() && now.Sub(r.last) < calmTime+r.pause && foreign != r.foreign
}

// add counts a repair that begins now. It reports whether another program
// changes the table repeatedly.
func (r *repairs) add(kind DamageKind, now time.Time, foreign int) (again bool) {
	r.again = r.recent(now, foreign)
	if !r.again {
		r.backoff = 0
	}
	r.last, r.foreign, r.cost, r.pause = now, foreign, 0, 0
	r.count[kind]++
	return r.again
}

// charge adds CPU time to the cost of the last repair.
func (r *repairs) charge(used time.Duration, now time.Time, l *Limits) {
	small := r.cost <= l.FreeRepair
	r.cost += used
	r.debt = max(0, r.debt-now.Sub(r.charged)/repairShare) + used
	r.charged = now
	if small && r.cost > l.FreeRepair && r.again {
		r.backoff = min(max(2*r.backoff, l.FirstPause), l.LastPause)
	}
	if r.pause = 0; r.cost > l.FreeRepair {
		r.pause = r.backoff
	} else if r.again {
		r.pause = max(0, r.debt-l.FreeRepair) * repairShare
	}
}

// logs reports whether a repair is logged: one in a second is.
func (r *repairs) logs(now time.Time) bool {
	if now.Sub(r.logged) < time.Second {
		r.quiet++
		return false
	}
	r.logged = now
	return true
}
