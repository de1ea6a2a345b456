package tour

import (
	"slices"
	"time"

	"github.com/nftproxy/nftproxy/test/lab"
)

// change is a change of the endpoints of a Service, as clients see it.
type change struct {
	// at is when it was made.
	at time.Time
	// before and after are the endpoints' names.
	before, after []string
}

// isNew tells whether an attempt shows the state after the change: it ended in a way that was not possible before.
func (c change) isNew(a attempt) bool {
	if len(c.after) == 0 {
		return a.outcome == lab.Refused
	}
	return a.outcome == lab.Answered && !slices.Contains(c.before, a.server)
}

// isOld tells whether an attempt shows the state before the change.
func (c change) isOld(a attempt) bool {
	if len(c.before) == 0 {
		return a.outcome == lab.Refused
	}
	return a.outcome == lab.Answered && !slices.Contains(c.after, a.server)
}

// brings tells whether the change adds something that can be seen: an endpoint, or refusals.
func (c change) brings() bool {
	return len(c.after) == 0 || slices.ContainsFunc(c.after, func(s string) bool { return !slices.Contains(c.before, s) })
}

// quiet is how many connections in a row must show nothing of the state before, until that counts as over: with one of three
// endpoints removed, that it is missed by chance happens once in 10^14 times.
const quiet = 80

// inForce returns for each line when the change was in force: when it was first seen, or, where it only takes something away,
// when for the first time that was not seen any more. complete is false as long as that is not known for all lines. The attempts are in order of their
// ends.
func (c change) inForce(lines int, attempts []attempt) (when []time.Time, complete bool) {
	when = make([]time.Time, lines)
	calm := make([]int, lines) // attempts since the last old one
	seen := make([]bool, lines)
	for _, a := range attempts {
		if a.start.Before(c.at) {
			continue
		}
		switch {
		case c.brings():
			if c.isNew(a) && !seen[a.line] {
				when[a.line], seen[a.line] = a.end, true
			}
		case c.isOld(a):
			calm[a.line], seen[a.line] = 0, false
		default:
			if calm[a.line] == 0 {
				when[a.line] = a.end
			}
			calm[a.line]++
			seen[a.line] = calm[a.line] >= quiet
		}
	}
	return when, !slices.Contains(seen, false)
}

// delay returns how long after the change it was in force everywhere.
func (c change) delay(when []time.Time) time.Duration {
	var longest time.Duration
	for _, w := range when {
		longest = max(longest, w.Sub(c.at))
	}
	return longest
}
