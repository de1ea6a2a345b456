package rendezvous

import (
	"cmp"
	"slices"
)

// interval is the mean time between the requests of an endpoint with weight 1.
const interval = timeUnit * timeUnit

// round is the requests of all endpoints in a period of time.
type round struct {
	builder  *builder
	end      uint64
	requests []request // in the order of time
}

// next proceeds to the next period, in which each endpoint asks for one row on
// average.
func (r *round) next() {
	b := r.builder
	endpoints, weights := 0, 0
	for i := range b.askers {
		if a := &b.askers[i]; !b.full(a) {
			endpoints, weights = endpoints+1, weights+a.weight
		}
	}
	r.end += uint64(endpoints) * interval / uint64(weights)
	r.requests = r.requests[:0]
	for i := range b.askers {
		if a := &b.askers[i]; !b.full(a) {
			r.collect(a)
		}
	}
	slices.SortFunc(r.requests, func(a, b request) int {
		return cmp.Or(cmp.Compare(a.time, b.time), cmp.Compare(a.asker, b.asker))
	})
}

// collect adds the requests of an endpoint for rows that are free.
func (r *round) collect(a *asker) {
	for a.next.time < r.end {
		if !r.builder.taken[a.next.row] {
			r.requests = append(r.requests, a.next)
		}
		r.builder.ask(a)
	}
}
