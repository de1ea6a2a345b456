package eject

import (
	"cmp"
	"net/netip"
	"slices"
	"time"
)

// Not every silence is evidence: a network policy can drop the packets of some
// clients and the probes of this node. It counts
//
//   - if the endpoint has answered the same client before, or a probe,
//   - and if no other client gets an answer for as long as answers would take
//     to come, judged by how often they came before.

const (
	// minTries is the number of unanswered tries within tryWindow, or in two
	// walks that are further apart, that make a suspect. An attempt that is
	// unanswered for repeatedAfter is two tries: its client has repeated the
	// SYN.
	minTries      = 2
	tryWindow     = 10 * time.Second
	repeatedAfter = 1200 * time.Millisecond
	// maxKeptTries limits the tries of an endpoint that are remembered,
	// maxTriesOf those of a client, so that one does not hide the others.
	maxKeptTries = 16
	maxTriesOf   = 2
	// maxAnswered limits the answered connections of a suspect that are
	// remembered, approximately, and their clients.
	maxAnswered = 1024
	// maxClients limits the clients of an endpoint that are remembered while it
	// is ejected, and for memory afterwards.
	maxClients = 16
	memory     = 10 * time.Minute
	// An endpoint is observed for as long as observedAnswers of other clients
	// would take, on average, but not longer than maxObserved, twice that after
	// an ejection, and four times after two. A client that is answered less often than rare (per
	// second) would not come in this time.
	observedAnswers = 3
	maxObserved     = 30 * time.Second
	rare            = 1.0 / 50
)

// try is an attempt of a client, and when it was seen first and last.
type try struct {
	client      netip.AddrPort
	id          uint32
	first, last time.Time
}

// Answer is a connection that an endpoint has answered.
type Answer struct {
	ID     uint32
	Client netip.Addr
	// Lasts is how long connection tracking remembers a connection in this
	// state, zero if that says nothing about how often clients connect.
	Lasts time.Duration
}

// history is what is known about the answers of an endpoint.
type history struct {
	// answered are the connections that the endpoint had answered when it was
	// looked at: those whose IDs are multiples of stride, sorted.
	answered []uint32
	stride   uint32
	looked   time.Time
	clients  []client
	// heard is the time of the last probe that the endpoint answered, zero if an
	// ejection has ended without one since.
	heard time.Time
}

// client is a client that an endpoint has answered, and how often, in
// connections per second.
type client struct {
	addr netip.Addr
	rate float64
}

// look records the connections that the endpoint has answered: if there are
// many, a part of them. Clients that are known from before stay.
func (h *history) look(now time.Time, answers []Answer) {
	h.stride, h.looked = 1, now
	for len(answers)/int(h.stride) > maxAnswered {
		h.stride *= 2
	}
	rates := make(map[netip.Addr]float64)
	for _, c := range h.clients {
		rates[c.addr] = 0
	}
	h.answered, h.clients = nil, nil
	for _, a := range answers {
		if a.ID%h.stride != 0 {
			continue
		}
		h.answered = append(h.answered, a.ID)
		rate := 0.0
		if a.Lasts > 0 { // Little's law
			rate = 1 / a.Lasts.Seconds()
		}
		rates[a.Client] += rate
	}
	slices.Sort(h.answered)
	for addr, rate := range rates {
		h.clients = append(h.clients, client{addr, rate})
	}
	slices.SortFunc(h.clients, func(a, b client) int { return a.addr.Compare(b.addr) })
}

// isNew reports whether an answered connection began after the look. It does so
// only for IDs that are multiples of stride.
func (h *history) isNew(a Answer) bool {
	_, known := slices.BinarySearch(h.answered, a.ID)
	return !known && a.ID%h.stride == 0
}

// knows reports whether the endpoint has answered a client.
func (h *history) knows(addr netip.Addr) bool {
	_, found := slices.BinarySearchFunc(h.clients, addr, func(c client, addr netip.Addr) int {
		return c.addr.Compare(addr)
	})
	return found
}

// keepClients keeps some of the clients, above all those with tries, then those
// that connect most often.
func (h *history) keepClients(tries []try) {
	if len(h.clients) <= maxClients {
		return
	}
	silent := func(c client) int {
		if slices.ContainsFunc(tries, func(t try) bool { return t.client.Addr() == c.addr }) {
			return 0
		}
		return 1
	}
	slices.SortFunc(h.clients, func(a, b client) int {
		return cmp.Or(silent(a)-silent(b), cmp.Compare(b.rate, a.rate), a.addr.Compare(b.addr))
	})
	h.clients = slices.Clone(h.clients[:maxClients])
	slices.SortFunc(h.clients, func(a, b client) int { return a.addr.Compare(b.addr) })
}

// tried records a try. If there are too many, one of a client that the endpoint
// has answered displaces one of another client.
func (r *record) tried(now time.Time, t Try) {
	of := 0
	for i, known := range r.tries {
		if known.client == t.Client && known.id == t.ID {
			r.tries[i].last = now
			return
		}
		if known.client.Addr() == t.Client.Addr() {
			of++
		}
	}
	if of >= maxTriesOf {
		return
	}
	if len(r.tries) >= maxKeptTries {
		i := slices.IndexFunc(r.tries, func(known try) bool { return !r.knows(known.client.Addr()) })
		if i < 0 || !r.knows(t.Client.Addr()) {
			return
		}
		r.tries = slices.Delete(r.tries, i, i+1)
	}
	r.tries = append(r.tries, try{t.Client, t.ID, now, now})
}

// count returns the number of tries. It forgets those before since of an
// endpoint that is watched or on trial.
func (r *record) count(since time.Time) (n int) {
	r.tries = slices.DeleteFunc(r.tries, func(t try) bool {
		return (r.phase == watched || r.phase == onTrial) && t.last.Before(since)
	})
	for _, t := range r.tries {
		n += t.count()
	}
	return n
}

func (t try) count() int {
	if t.last.Sub(t.first) >= repeatedAfter {
		return 2
	}
	return 1
}

// window returns the time from which tries count: tryWindow ago, or the time of
// the walk before the last one if that is earlier. A large connection tracking
// table makes walks rare.
func (d *Detector) window(now time.Time) time.Time {
	if since := now.Add(-tryWindow); since.Before(d.previous) {
		return since
	}
	return d.previous
}

// evidence returns the number of tries that are evidence.
func (d *Detector) evidence(now time.Time, r *record) (n int) {
	all := r.count(d.window(now))
	if now.Sub(r.heard) < memory {
		return all
	}
	for _, t := range r.tries {
		if r.knows(t.client.Addr()) {
			n += t.count()
		}
	}
	return n
}

// triedClients returns the number of clients that tried.
func (r *record) triedClients() int {
	clients := make(map[netip.Addr]struct{})
	for _, t := range r.tries {
		clients[t.client.Addr()] = struct{}{}
	}
	return len(clients)
}

// observed returns the time at which the endpoint was observed for long enough,
// after a look: if it lived, it would have answered a client that has no try.
func (r *record) observed() time.Time {
	var rate float64
	for _, c := range r.clients {
		if !slices.ContainsFunc(r.tries, func(t try) bool { return t.client.Addr() == c.addr }) {
			rate += c.rate
		}
	}
	if rate < rare {
		return r.looked
	}
	limit := maxObserved << min(r.level, 2)
	return r.looked.Add(min(time.Duration(observedAnswers/rate*float64(time.Second)), limit))
}
