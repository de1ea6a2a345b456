package eject

import (
	"cmp"
	"iter"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/share"
)

const (
	// minTries is the number of unanswered tries within tryWindow, or in two
	// walks that are further apart, that make a suspect. An attempt that is
	// unanswered for repeatedAfter is two tries: its client has repeated the
	// SYN.
	minTries      = 2
	tryWindow     = 10 * time.Second
	repeatedAfter = 1200 * time.Millisecond
	// probes of a suspect are probeGap apart.
	suspectProbes = 2
	probeGap      = 200 * time.Millisecond
	// baseTime is the time of the first ejection, maxTime of the longest one
	// (base_ejection_time and max_ejection_time of Envoy). After baseTime
	// without an ejection, the next one is half as long.
	baseTime = 10 * time.Second
	maxTime  = 300 * time.Second
	// maxProbeInterval limits the time between probes of ejected endpoints.
	maxProbeInterval = 30 * time.Second
	// A suspect that is alive is not probed again for firstRest, and for twice
	// as long each time, up to lastRest.
	firstRest = 2 * time.Second
	lastRest  = 16 * time.Second
	// maxRecords limits the endpoints that are known at a time (2 MB). Each
	// namespace has a share.
	maxRecords = 4096
	// maxKeptTries limits the tries of an endpoint that are remembered.
	maxKeptTries = 16
	// maxAnswered limits the answered connections of a suspect that are
	// remembered, approximately.
	maxAnswered = 1024
)

// Port identifies a TCP service port of an address family.
type Port struct {
	Family  nft.Family
	Service cluster.ServiceName
	Name    string
}

// Compare orders service ports by Service, name and family.
func (p Port) Compare(o Port) int {
	return cmp.Or(p.Service.Compare(o.Service), cmp.Compare(p.Name, o.Name), cmp.Compare(p.Family, o.Family))
}

// Endpoint is an endpoint of a service port.
type Endpoint struct {
	Port
	Addr netip.AddrPort
}

// Compare orders endpoints by service port and address.
func (e Endpoint) Compare(o Endpoint) int {
	return cmp.Or(e.Port.Compare(o.Port), e.Addr.Compare(o.Addr))
}

// Try is an attempt of a client to connect that has had no answer for some
// time.
type Try struct {
	Endpoint
	Client netip.AddrPort
	// ID distinguishes the attempts of a client.
	ID uint32
}

// Detector decides which endpoints are ejected. Only one goroutine may use it
// at a time.
type Detector struct {
	ports   map[Port]*port
	begun   int          // number of records that were ever begun
	limit   *share.Limit // of records
	rate    *rate        // of probes
	changed map[Port]struct{}
	blinded []Port
	// last and previous are the times of the last two calls of Tried.
	last, previous time.Time
}

// record is what is known about an endpoint.
type record struct {
	Endpoint
	port  *port
	order int // of the first attempts
	phase phase
	tries []try // in the order of their first times
	// answered are connections that the endpoint had answered when it became a
	// suspect: those whose IDs are multiples of stride.
	answered map[uint32]struct{}
	stride   uint32
	// nextProbe is the earliest time of the next probe; waiting the number of
	// probes without a result.
	nextProbe time.Time
	sent      int // probes of a suspect
	waiting   int
	turn      int // of its namespace, in takeTurns
	ejection  cluster.Ejection
	applied   bool // whether a table has the ejection
	// level is the number of doublings of the next ejection plus one. It
	// decreases at decay.
	level int
	decay time.Time
	// restUntil is the time until which tries are ignored, rests the number of
	// rests in a row.
	restUntil time.Time
	rests     int
}

// phase is the state of an endpoint.
type phase uint8

const (
	watched phase = iota // its unanswered attempts are collected
	suspect              // waits for the first look
	probed               // waits for the results of probes
	lost                 // waits for a control and for the second look
	ejected
	control // none of the above: it is compared with them
)

// try is an attempt of a client, and when it was seen first and last.
type try struct {
	client      netip.AddrPort
	id          uint32
	first, last time.Time
}

// New returns a Detector.
func New() *Detector {
	return &Detector{
		ports: make(map[Port]*port), limit: share.NewLimit(maxRecords), rate: newRate(),
		changed: make(map[Port]struct{}),
	}
}

// Tried records the attempts without an answer that a walk found, of service
// ports whose Targets are known.
func (d *Detector) Tried(now time.Time, tries []Try) {
	d.previous, d.last = d.last, now
	for _, t := range tries {
		p := d.ports[t.Port]
		if p == nil || !p.canLose[t.Addr] || now.Before(p.blindUntil) {
			continue
		}
		r := p.records[t.Addr]
		if r == nil {
			if r = d.record(p, t.Endpoint); r == nil {
				continue
			}
		}
		if r.phase == ejected || r.phase == watched && now.Before(r.restUntil) {
			continue
		}
		r.tried(now, t)
		if r.phase == watched && r.count(d.window(now)) >= minTries {
			r.phase = suspect
		}
	}
}

// record begins a record of an endpoint. It returns nil if there is no room
// for one.
func (d *Detector) record(p *port, e Endpoint) *record {
	if !d.limit.Take(e.Service.Namespace, 1) {
		return nil
	}
	d.begun++
	r := &record{Endpoint: e, port: p, order: d.begun}
	p.records[e.Addr] = r
	return r
}

func (d *Detector) forget(r *record) {
	if r.phase == ejected {
		d.changed[r.Port] = struct{}{}
	}
	delete(r.port.records, r.Addr)
	d.limit.Return(r.Service.Namespace, 1)
}

func (r *record) tried(now time.Time, t Try) {
	same := func(known try) bool { return known.client == t.Client && known.id == t.ID }
	if i := slices.IndexFunc(r.tries, same); i >= 0 {
		r.tries[i].last = now
		return
	}
	if len(r.tries) < maxKeptTries {
		r.tries = append(r.tries, try{t.Client, t.ID, now, now})
	}
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

// count returns the number of tries. It forgets those before since of an
// endpoint that is not suspect.
func (r *record) count(since time.Time) (n int) {
	r.tries = slices.DeleteFunc(r.tries, func(t try) bool { return r.phase == watched && t.last.Before(since) })
	for _, t := range r.tries {
		if n++; t.last.Sub(t.first) >= repeatedAfter {
			n++
		}
	}
	return n
}

// clients returns the number of clients that tried.
func (r *record) clients() int {
	clients := make(map[netip.Addr]struct{})
	for _, t := range r.tries {
		clients[t.client.Addr()] = struct{}{}
	}
	return len(clients)
}

// Answers records the IDs of connections that an endpoint has answered, for an
// endpoint of Orders.Looks.
func (d *Detector) Answers(now time.Time, e Endpoint, ids []uint32) {
	r := d.known(e)
	if r == nil {
		return
	}
	switch r.phase {
	case suspect:
		r.phase, r.sent, r.waiting, r.ejection.Probes = probed, 0, 0, 0
		r.nextProbe = now
		r.remember(ids)
		r.port.wantControl(now)
	case lost:
		isNew := func(id uint32) bool {
			_, known := r.answered[id]
			return !known && id%r.stride == 0
		}
		if slices.ContainsFunc(ids, isNew) {
			d.clear(now, r)
			return
		}
		d.eject(now, r)
	}
}

// remember remembers connections that the endpoint has answered: if there are
// many, a part of them.
func (r *record) remember(ids []uint32) {
	r.stride = 1
	for len(ids)/int(r.stride) > maxAnswered {
		r.stride *= 2
	}
	r.answered = make(map[uint32]struct{})
	for _, id := range ids {
		if id%r.stride == 0 {
			r.answered[id] = struct{}{}
		}
	}
}

// clear records that a suspect is alive, or that its state cannot be told.
func (d *Detector) clear(now time.Time, r *record) {
	r.restUntil = now.Add(min(firstRest<<r.rests, lastRest))
	if firstRest<<r.rests < lastRest {
		r.rests++
	}
	r.phase, r.tries, r.answered = watched, nil, nil
}

func (d *Detector) eject(now time.Time, r *record) {
	r.phase, r.answered, r.applied = ejected, nil, false
	r.ejection = cluster.Ejection{
		Endpoint: r.Addr, Since: now, Attempts: r.count(d.window(now)), Clients: r.clients(), Probes: r.ejection.Probes,
	}
	d.prolong(now, r)
}

// prolong begins an ejection, or the next one without an end between them.
func (d *Detector) prolong(now time.Time, r *record) {
	if r.level == 0 || timeOf(r.level) < maxTime {
		r.level++
	}
	lasts := timeOf(r.level)
	r.ejection.Until = now.Add(lasts)
	r.nextProbe = now.Add(min(lasts/2, maxProbeInterval))
	d.changed[r.Port] = struct{}{}
}

// timeOf returns how long an ejection lasts.
func timeOf(level int) time.Duration { return min(baseTime<<(level-1), maxTime) }

// Targets are the endpoints that a service port uses for clients with each
// traffic policy, ejected ones included.
type Targets struct{ Cluster, Local []netip.AddrPort }

func (t Targets) lists() [2][]netip.AddrPort { return [2][]netip.AddrPort{t.Cluster, t.Local} }

// equal reports whether two Targets are the same.
func (t Targets) equal(o Targets) bool {
	return slices.Equal(t.Cluster, o.Cluster) && slices.Equal(t.Local, o.Local)
}

// canLose returns the endpoints of the lists that may lose one.
func (t Targets) canLose() map[netip.AddrPort]bool {
	all := make(map[netip.AddrPort]bool)
	for _, list := range t.lists() {
		if cluster.MaxEjected(len(list)) > 0 {
			for _, addr := range list {
				all[addr] = true
			}
		}
	}
	return all
}

// SetTargets sets the endpoints that a service port uses now, and those of them
// whose ejections are known there, sorted. What is known about others is
// forgotten: the API removed or changed them.
func (d *Detector) SetTargets(p Port, t Targets, ejections []netip.AddrPort) {
	known := d.ports[p]
	if known == nil {
		known = &port{records: make(map[netip.AddrPort]*record)}
		d.ports[p] = known
	}
	if known.canLose == nil || !known.targets.equal(t) {
		known.targets, known.canLose = t, t.canLose()
	}
	isEjected := func(a netip.AddrPort) bool {
		_, found := slices.BinarySearchFunc(ejections, a, netip.AddrPort.Compare)
		return found
	}
	for _, r := range known.records {
		if !known.canLose[r.Addr] || r.phase == ejected && r.applied && !isEjected(r.Addr) {
			d.forget(r)
		}
	}
}

// known returns the record of an endpoint, nil if there is none.
func (d *Detector) known(e Endpoint) *record {
	if p := d.ports[e.Port]; p != nil {
		return p.records[e.Addr]
	}
	return nil
}

// Ejected reports whether an endpoint is ejected.
func (d *Detector) Ejected(e Endpoint) bool {
	r := d.known(e)
	return r != nil && r.phase == ejected
}

// Ports returns the service ports of a family whose Targets are needed, in no
// particular order.
func (d *Detector) Ports(f nft.Family) (all []Port) {
	for p := range d.ports {
		if p.Family == f {
			all = append(all, p)
		}
	}
	return all
}

// Changed returns the service ports whose ejections changed and were not
// Applied since, sorted.
func (d *Detector) Changed() []Port { return slices.SortedFunc(maps.Keys(d.changed), Port.Compare) }

// Applied records that a table has the Ejections of a service port.
func (d *Detector) Applied(key Port) {
	delete(d.changed, key)
	for r := range d.ejected(key) {
		r.applied = true
	}
}

// ejected returns the records of the ejected endpoints of a service port.
func (d *Detector) ejected(key Port) iter.Seq[*record] {
	return func(yield func(*record) bool) {
		p := d.ports[key]
		if p == nil {
			return
		}
		for _, r := range p.records {
			if r.phase == ejected && !yield(r) {
				return
			}
		}
	}
}

// Ejections returns the ejected endpoints of a service port, and those of them
// whose ejection is not Applied, both sorted.
func (d *Detector) Ejections(key Port) (all []cluster.Ejection, begun []netip.AddrPort) {
	for r := range d.ejected(key) {
		all = append(all, r.ejection)
		if !r.applied {
			begun = append(begun, r.Addr)
		}
	}
	slices.SortFunc(all, func(a, b cluster.Ejection) int { return a.Endpoint.Compare(b.Endpoint) })
	slices.SortFunc(begun, netip.AddrPort.Compare)
	return all, begun
}
