package conntrack

import "time"

// rechecks are checks to make a second time, at least delay after the first.
// They gather while others wait, so that there is at most one second pass per
// delay, however many changes come.
type rechecks struct {
	delay              time.Duration
	waiting, gathering recheck
}

// recheck is the work of one second pass.
type recheck struct {
	check
	first, last time.Time // when checks were added
}

// add adds a check that was made at a time.
func (r *rechecks) add(c check, now time.Time) {
	to := &r.waiting
	if !to.empty() {
		to = &r.gathering
	}
	if to.empty() {
		to.first = now
	}
	to.last = now
	to.merge(c)
}

// take removes and returns the checks that waited for delay; with none it
// returns an empty check.
func (r *rechecks) take(now time.Time) check {
	if r.waiting.empty() || now.Sub(r.waiting.last) < r.delay {
		return check{}
	}
	c := r.waiting.check
	r.waiting, r.gathering = r.gathering, recheck{}
	return c
}

// due returns when a pass is to be made if no other pass was made until then
// that took the waiting checks along, and false if none wait.
func (r *rechecks) due() (time.Time, bool) {
	if r.waiting.empty() {
		return time.Time{}, false
	}
	earliest, latest := r.waiting.last.Add(r.delay), r.waiting.first.Add(2*r.delay)
	if latest.Before(earliest) {
		latest = earliest
	}
	return latest, true
}
