package conntrack

import "time"

// rechecks are the checks that have to be made a second time, at least delay
// after the first. New ones gather while others wait, so there is at most one
// second pass per delay, however many frontends change.
type rechecks struct {
	delay              time.Duration
	waiting, gathering recheck
}

// recheck is the work of a second pass.
type recheck struct {
	check
	first, last time.Time // when the first and the last check were added
}

// add adds a check that was made for the first time at now.
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

// take removes and returns the checks that have waited for delay. If there
// are none, it returns an empty check.
func (r *rechecks) take(now time.Time) check {
	if r.waiting.empty() || now.Sub(r.waiting.last) < r.delay {
		return check{}
	}
	c := r.waiting.check
	r.waiting, r.gathering = r.gathering, recheck{}
	return c
}

// due returns the time of the next second pass, and false if no checks wait.
// Until this time, a pass for other changes can take the waiting checks
// along.
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
