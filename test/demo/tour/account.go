package tour

import (
	"maps"
	"slices"
	"time"

	"github.com/nftproxy/nftproxy/test/lab"
)

// account is how the connections of a stretch of time ended.
type account struct {
	attempts, answered, refused int
	// lost is all others: those that nobody answered or refused.
	lost int
	// servers answered, in order.
	servers []string
}

// accountOf counts the attempts that the filter lets through.
func accountOf(attempts []attempt, filter func(attempt) bool) account {
	var sum account
	servers := map[string]struct{}{}
	for _, a := range attempts {
		if !filter(a) {
			continue
		}
		sum.attempts++
		switch a.outcome {
		case lab.Answered:
			sum.answered++
			servers[a.server] = struct{}{}
		case lab.Refused:
			sum.refused++
		default:
			sum.lost++
		}
	}
	sum.servers = slices.Sorted(maps.Keys(servers))
	return sum
}

// between lets attempts through that began in that time.
func between(from, until time.Time) func(attempt) bool {
	return func(a attempt) bool { return !a.start.Before(from) && a.start.Before(until) }
}

// gap is the time for which a line has an excuse for attempts that are not answered. The zero value excuses nothing.
type gap struct {
	from  time.Time
	until []time.Time // by line
}

// excuses tells whether part of the attempt lay in the gap.
func (g gap) excuses(a attempt) bool {
	return g.until != nil && !a.end.Before(g.from) && !a.start.After(g.until[a.line])
}
