package eject

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"time"
)

// A network policy can drop the packets of some clients and the probes of this
// node. So an unanswered try is evidence only if the endpoint has answered its
// client, or a probe, before. If the endpoint has not answered any client, a
// try is evidence if another endpoint has answered its client. All other
// clients that try are strangers.
//
// If this node cannot resolve the link-layer address to which it would send
// packets, no policy is the cause: all tries are evidence, the endpoint is not
// observed, and there is no trial.
//
// Another endpoint with evidence is ejected if it answers no other client while
// it is observed: for as long as the next answer would take, judged by how
// often the clients were answered before.

const (
	// minTries is the number of unanswered tries within tryWindow, or in two
	// walks that are further apart, that make a suspect. An attempt that is
	// unanswered for repeatedAfter is two tries: its client has repeated the
	// SYN.
	minTries      = 2
	minTrialTries = 1 // of an endpoint on trial
	tryWindow     = 10 * time.Second
	repeatedAfter = 1200 * time.Millisecond
	// maxKeptTries limits the tries of an endpoint that are remembered,
	// maxTriesOf those of a client, so that one does not hide the others.
	maxKeptTries = 16
	maxTriesOf   = 2
	// maxClients limits the clients of a suspect that are remembered,
	// maxAnswered the answered connections of each, approximately.
	maxClients  = 256
	maxAnswered = 64
	// maxKept limits the clients that are remembered while an endpoint is
	// ejected, and for memory afterwards.
	maxKept = 16
	memory  = 10 * time.Minute
	// An endpoint is observed for as long as observedAnswers of another client
	// would take, on average, but not longer than maxObserved, three times that
	// after an ejection, and five times after more. Clients that are answered
	// less often than rare (per second) are as one client.
	observedAnswers = 3
	maxObserved     = 30 * time.Second
	trialOfNew      = 10 * time.Second // of an endpoint that has not answered any client
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
	looked  time.Time
	clients []*client // that it has answered, sorted
	// all reports whether these are all clients at the time of the look.
	all bool
	// observedAt is the result of observed after a walk.
	observedAt time.Time
	walk       int
	// heard is the time of the last probe that the endpoint answered, zero if
	// an ejection has ended without one since.
	heard time.Time
}

// client is a client that an endpoint has answered.
type client struct {
	addr netip.Addr
	rate float64 // of answered connections per second
	// answered are the connections at the time of the look: those whose IDs are
	// multiples of stride.
	answered []uint32
	stride   uint32
}

// look records the connections that the endpoint has answered. Clients from
// before an ejection stay.
func (r *record) look(now time.Time, answers []Answer) {
	h, known := &r.history, make(map[netip.Addr]*client)
	if now.Sub(r.ejection.Until) > memory {
		h.clients = nil
	}
	for _, c := range h.clients {
		c.answered, c.stride = nil, 1
		known[c.addr] = c
	}
	rates := make(map[*client]float64)
	for _, a := range answers {
		c := known[a.Client]
		if c == nil {
			c = &client{addr: a.Client}
			known[a.Client] = c
		}
		c.answered = append(c.answered, a.ID)
		if a.Lasts > 0 {
			rates[c] += 1 / a.Lasts.Seconds() // Little's law
		}
	}
	for c, rate := range rates {
		c.rate = max(c.rate, rate)
	}
	h.looked, h.all = now, len(known) <= maxClients
	h.keep(slices.Collect(maps.Values(known)), maxClients, nil)
	for _, c := range h.clients {
		c.sample()
	}
}

// sample keeps a part of the answered connections if there are many.
func (c *client) sample() {
	c.stride = 1
	for len(c.answered)/int(c.stride) > maxAnswered {
		c.stride *= 2
	}
	c.answered = slices.DeleteFunc(c.answered, func(id uint32) bool { return id%c.stride != 0 })
	slices.Sort(c.answered)
}

// keep keeps at most n of some clients, above all those with tries, then those
// that connect most often.
func (h *history) keep(clients []*client, n int, tries []try) {
	if len(clients) > n {
		silent := func(c *client) int {
			if c.isSilent(tries) {
				return 0
			}
			return 1
		}
		slices.SortFunc(clients, func(a, b *client) int {
			return cmp.Or(silent(a)-silent(b), cmp.Compare(b.rate, a.rate), a.addr.Compare(b.addr))
		})
		clients = slices.Clone(clients[:n])
	}
	slices.SortFunc(clients, func(a, b *client) int { return a.addr.Compare(b.addr) })
	h.clients = clients
}

// keepSome forgets what is not needed while the endpoint is ejected.
func (h *history) keepSome(tries []try) {
	h.keep(h.clients, maxKept, tries)
	for _, c := range h.clients {
		c.answered = nil
	}
}

// isSilent reports whether a client has any of the tries.
func (c *client) isSilent(tries []try) bool {
	return slices.ContainsFunc(tries, func(t try) bool { return t.client.Addr() == c.addr })
}

// isNew reports whether an answered connection began after the look. It does so
// only for IDs that are multiples of the client's stride.
func (h *history) isNew(a Answer) bool {
	c := h.client(a.Client)
	if c == nil {
		return h.all
	}
	_, known := slices.BinarySearch(c.answered, a.ID)
	return !known && a.ID%c.stride == 0
}

// client returns a client that the endpoint has answered, nil if it has not.
func (h *history) client(addr netip.Addr) *client {
	i, found := slices.BinarySearchFunc(h.clients, addr, func(c *client, addr netip.Addr) int {
		return c.addr.Compare(addr)
	})
	if !found {
		return nil
	}
	return h.clients[i]
}

// knows reports whether the endpoint has answered a client.
func (h *history) knows(addr netip.Addr) bool { return h.client(addr) != nil }

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
		i := slices.IndexFunc(r.tries, func(known try) bool { return !r.counts(now, known.client.Addr()) })
		if i < 0 || !r.counts(now, t.Client.Addr()) {
			return
		}
		r.tries = slices.Delete(r.tries, i, i+1)
	}
	r.tries = append(r.tries, try{t.Client, t.ID, now, now})
}

// recent returns the tries. It forgets those before since of an endpoint that
// is watched or on trial.
func (r *record) recent(since time.Time) []try {
	r.tries = slices.DeleteFunc(r.tries, func(t try) bool {
		return (r.phase == watched || r.phase == onTrial) && t.last.Before(since)
	})
	return r.tries
}

// count returns the number of tries.
func count(tries []try) (n int) {
	for _, t := range tries {
		if n++; t.last.Sub(t.first) >= repeatedAfter {
			n++
		}
	}
	return n
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

// evidence returns the tries that are evidence.
func (d *Detector) evidence(now time.Time, r *record) []try {
	isStranger := func(t try) bool { return !r.counts(now, t.client.Addr()) }
	return slices.DeleteFunc(slices.Clone(r.recent(d.window(now))), isStranger)
}

// hasEvidence reports whether the evidence suffices for an ejection.
func (d *Detector) hasEvidence(now time.Time, r *record) bool {
	needed := minTries
	if r.isTried {
		needed = minTrialTries
	}
	return count(d.evidence(now, r)) >= needed
}

// counts reports whether tries of a client are evidence.
func (r *record) counts(now time.Time, addr netip.Addr) bool {
	if r.unresolved || now.Sub(r.heard) < memory || r.knows(addr) {
		return true
	}
	_, answered := r.port.others[addr]
	return answered && len(r.clients) == 0 && now.Sub(r.port.othersAt) < memory
}

// needsOthers reports whether it has to be known whether another endpoint has
// answered the clients with tries.
func (r *record) needsOthers(now time.Time) bool {
	return len(r.clients) == 0 && now.Sub(r.port.othersAt) > controlTime
}

// clientsOf returns the number of clients of tries.
func clientsOf(tries []try) int {
	clients := make(map[netip.Addr]struct{})
	for _, t := range tries {
		clients[t.client.Addr()] = struct{}{}
	}
	return len(clients)
}

// observed returns the time at which the endpoint was observed for long enough,
// after a look: if it lived, it would have answered a client that has no try,
// neither with this service port nor with another one. Each of these clients
// may be the only one that it answers. On trial, an endpoint that has answered
// nobody gets more time.
func (d *Detector) observed(r *record) time.Time {
	if r.unresolved {
		return r.looked
	}
	if r.walk != d.walks || r.observedAt.Before(r.looked) {
		r.walk, r.observedAt = d.walks, d.computeObserved(r)
	}
	return r.observedAt
}

func (d *Detector) computeObserved(r *record) time.Time {
	silent := d.silentAt(r.Addr)
	var lasts, rares float64
	for _, c := range r.clients {
		_, isSilent := silent[c.addr]
		switch seen := c.rate / float64(max(c.stride, 1)); {
		case isSilent:
		case seen < rare:
			rares += seen
		default:
			lasts = max(lasts, observedAnswers/seen)
		}
	}
	if rares >= rare {
		lasts = max(lasts, observedAnswers/rares)
	}
	if len(r.clients) == 0 && r.isTried {
		return r.looked.Add(trialOfNew)
	}
	limit := maxObserved * time.Duration(1+2*min(r.level, 2))
	return r.looked.Add(min(time.Duration(lasts*float64(time.Second)), limit))
}

// silentAt returns the clients with tries to an address, which it computes once
// after each walk.
func (d *Detector) silentAt(addr netip.AddrPort) map[netip.Addr]struct{} {
	silent, known := d.silent[addr]
	if !known {
		silent = make(map[netip.Addr]struct{})
		for _, r := range d.at[addr] {
			for _, t := range r.tries {
				silent[t.client.Addr()] = struct{}{}
			}
		}
		d.silent[addr] = silent
	}
	return silent
}
