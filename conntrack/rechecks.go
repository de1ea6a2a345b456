package conntrack

import "time"

// rechecks are the checks that have to be made a second time, in the order of
// their first passes.
type rechecks []recheck

type recheck struct {
	check
	at time.Time // when the first pass ended
}

// take removes and returns the checks that have waited for recheckDelay.
func (r *rechecks) take(now time.Time) (c check) {
	for len(*r) > 0 && now.Sub((*r)[0].at) >= recheckDelay {
		c.merge((*r)[0].check)
		*r = (*r)[1:]
	}
	return c
}

// due returns the time of the next second pass, zero if no checks wait. It
// leaves time for other checks: there is at most one second pass per
// recheckDelay, however many frontends change. Until then, a pass for other
// changes can take the waiting checks along.
func (r rechecks) due() time.Time {
	if len(r) == 0 {
		return time.Time{}
	}
	return r[0].at.Add(2 * recheckDelay)
}
