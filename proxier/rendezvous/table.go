package rendezvous

import "net/netip"

// Endpoint is an endpoint with its weight.
type Endpoint struct {
	netip.AddrPort
	Weight int // from 0 to 100; an endpoint with weight 0 gets no row
}

// maxRows is the number of rows that a uint16 can index.
const maxRows = 1 << 16

// Size returns the number of rows of the table of n endpoints with a weight, if
// rows are wanted. With more endpoints than rows, it is 10, 100, … times as
// high. n must be at most 65536.
func Size(n, rows int) int {
	for rows < n {
		rows *= 10
	}
	return min(rows, maxRows)
}

// Table returns for each row the index of its endpoint. The endpoints must be
// in ascending order of their addresses and ports, without duplicates. The
// table has Size rows, and is empty if no endpoint has a weight.
//
// An endpoint with a weight has at least one row. Its due share of the rows is
// its share of the weights. It has at most 1.3 times its due share, if that is
// ten rows or more, or else up to three rows more. The endpoints of each weight
// together have their due share, rounded up or down.
//
// The port of an endpoint only matters if another one has the same address. So
// clients have the same endpoint on all ports of a Service.
func Table(endpoints []Endpoint, rows int) []uint16 {
	b := newBuilder(endpoints, rows)
	b.oneRowEach()
	for b.free > 0 {
		b.nextRound()
		for _, r := range b.requests {
			b.assign(r)
		}
	}
	return b.table
}

// builder builds a table.
type builder struct {
	table []uint16
	taken []bool
	free  int
	// askers are the endpoints with a weight.
	askers  []asker
	weights int        // their sum
	classes [101]class // by weight

	end      uint64    // of the present round
	requests []request // of the present round, in the order of time
}

// asker is an endpoint that asks for rows.
type asker struct {
	key      uint64
	endpoint uint16
	weight   int
	rows     int // that it has
	limit    int
	pace     uint64 // timeUnit divided by the weight
	next     request
	asked    uint64 // number of requests
}

// timeUnit is the square root of the unit of time.
const timeUnit = 1 << 20

// class is all endpoints of one weight.
type class struct{ endpoints, rows, limit int }

// request is the point in time at which an endpoint asks for a row.
type request struct {
	time  uint64
	row   uint32
	asker uint32
}

func newBuilder(endpoints []Endpoint, rows int) *builder {
	b := &builder{askers: make([]asker, 0, len(endpoints))}
	for i, e := range endpoints {
		if e.Weight == 0 {
			continue
		}
		same := func(j int) bool { return j >= 0 && j < len(endpoints) && endpoints[j].Addr() == e.Addr() }
		b.askers = append(b.askers, asker{
			key: keyOf(e.AddrPort, same(i-1) || same(i+1)), endpoint: uint16(i),
			weight: e.Weight, pace: timeUnit / uint64(e.Weight), next: request{asker: uint32(len(b.askers))},
		})
		b.weights += e.Weight
		b.classes[e.Weight].endpoints++
	}
	if len(b.askers) == 0 {
		return b
	}
	b.free = Size(len(b.askers), rows)
	b.table, b.taken = make([]uint16, b.free), make([]bool, b.free)
	b.setLimits()
	return b
}

// setLimits sets the limits of endpoints and classes. The limit of an endpoint
// is 1.22 times its due share and up to 0.8 rows, by a hash. Without the hash,
// a change of the number of endpoints could change all limits by one row. It is
// at most 1.3 times a due share of ten rows or more.
func (b *builder) setLimits() {
	const one = 1 << 16
	rows := len(b.table)
	for i := range b.askers {
		a := &b.askers[i]
		due := one * rows * a.weight / b.weights
		random := int(mix(a.key) % one)
		a.limit = max((due*61/50+random*4/5)/one, (due+one-1)/one)
	}
	for weight := range b.classes {
		c := &b.classes[weight]
		due := rows * c.endpoints * weight
		c.limit = max((due+b.weights-1)/b.weights, c.endpoints)
	}
}

// oneRowEach assigns a row to each endpoint.
func (b *builder) oneRowEach() {
	for i := range b.askers {
		a := &b.askers[i]
		for a.rows == 0 {
			b.ask(a)
			b.assign(a.next)
		}
		a.asked = 0
		b.ask(a)
	}
}

// ask sets the next request of an endpoint. The n-th one is at a random time in
// the n-th interval, whose length is the inverse of the weight.
func (b *builder) ask(a *asker) {
	a.asked++
	h := mix(a.key + a.asked*golden)
	a.next.time = (a.asked*timeUnit + h%timeUnit) * a.pace
	a.next.row = uint32((h >> 32) * uint64(len(b.table)) >> 32)
}

// assign assigns a row to an endpoint that asks for it, if the row is free and
// the endpoint may have one more.
func (b *builder) assign(r request) {
	a := &b.askers[r.asker]
	if b.taken[r.row] || b.full(a) {
		return
	}
	b.table[r.row], b.taken[r.row] = a.endpoint, true
	a.rows++
	b.classes[a.weight].rows++
	b.free--
}

func (b *builder) full(a *asker) bool {
	c := &b.classes[a.weight]
	return a.rows >= a.limit || c.rows >= c.limit
}
