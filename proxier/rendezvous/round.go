package rendezvous

import (
	"cmp"
	"slices"
)

// interval is the mean time between the requests of an endpoint with weight 1.
const interval = timeUnit * timeUnit

// nextRound collects the requests of all endpoints in the next period of time,
// in which each endpoint asks for one row on average.
func (b *builder) nextRound() {
	endpoints, weights := 0, 0
	for i := range b.askers {
		if a := &b.askers[i]; !b.full(a) {
			endpoints, weights = endpoints+1, weights+a.weight
		}
	}
	b.end += uint64(endpoints) * interval / uint64(weights)
	b.requests = b.requests[:0]
	for i := range b.askers {
		if a := &b.askers[i]; !b.full(a) {
			b.collect(a)
		}
	}
	slices.SortFunc(b.requests, func(a, b request) int {
		return cmp.Or(cmp.Compare(a.time, b.time), cmp.Compare(a.asker, b.asker))
	})
}

// collect adds the requests of an endpoint for rows that are free.
func (b *builder) collect(a *asker) {
	for a.next.time < b.end {
		if !b.taken[a.next.row] {
			b.requests = append(b.requests, a.next)
		}
		b.ask(a)
	}
}
