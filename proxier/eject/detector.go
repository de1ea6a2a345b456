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
	// maxRecords limits the endpoints that are known at a time (12 MB with all
	// their tries and clients). Each namespace has a share.
	maxRecords = 4096
	// trialTime is how long an endpoint is on trial at most. A walk is wanted
	// trialWait after the trial begins, and a probe each trialProbe.
	trialTime  = time.Minute
	trialWait  = 500 * time.Millisecond
	trialProbe = 5 * time.Second
)

// Port identifies a TCP service port of an address family.
type Port struct {
	Family nft.Family
	cluster.PortName
}

// Compare orders service ports by name, then by family.
func (p Port) Compare(o Port) int {
	return cmp.Or(p.PortName.Compare(o.PortName), cmp.Compare(p.Family, o.Family))
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
	at      map[netip.AddrPort][]*record
	silent  map[netip.AddrPort]map[netip.Addr]struct{} // see silentAt
	walks   int
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
	history
	// nextProbe is the earliest time of the next probe; waiting the number of
	// probes without a result.
	nextProbe time.Time
	sent      int // probes of a suspect
	waiting   int
	turn      int // of its namespace, in takeTurns
	ejection  cluster.Ejection
	applied   bool // whether a table has the ejection
	// unresolved reports whether the last probes found that no packet of this
	// node reaches the endpoint.
	unresolved bool
	// level is the number of doublings of the next ejection plus one. It
	// decreases at decay.
	level int
	decay time.Time
	// restUntil is the time until which tries are ignored, strangersUntil the
	// time until which those of strangers are. rests is the number of rests in
	// a row.
	restUntil, strangersUntil time.Time
	rests                     int
	// isTried reports whether the endpoint is on trial, in phase onTrial or
	// lost. trialUntil is the end of the trial.
	isTried    bool
	trialUntil time.Time
}

// phase is the state of an endpoint.
type phase uint8

const (
	watched phase = iota // its unanswered attempts are collected
	suspect              // waits for the first look
	probed               // waits for the results of probes
	lost                 // waits for a control and for the second look
	ejected
	returning // is ejected, and waits for a look
	onTrial   // its ejection has ended, although it answered no probe
	control   // none of the above: it is compared with them
)

// New returns a Detector.
func New() *Detector {
	return &Detector{
		ports: make(map[Port]*port), at: make(map[netip.AddrPort][]*record),
		silent: make(map[netip.AddrPort]map[netip.Addr]struct{}),
		limit:  share.NewLimit(maxRecords), rate: newRate(),
		changed: make(map[Port]struct{}),
	}
}

// Tried records the attempts without an answer that a walk found, of service
// ports whose Targets are known.
func (d *Detector) Tried(now time.Time, tries []Try) {
	d.previous, d.last = d.last, now
	d.walks++
	d.silent = make(map[netip.AddrPort]map[netip.Addr]struct{})
	for _, t := range tries {
		p := d.ports[t.Port]
		if p == nil || !p.targets.canLose(t.Addr) || now.Before(p.blindUntil) {
			continue
		}
		r := p.records[t.Addr]
		if r == nil {
			if r = d.record(p, t.Endpoint); r == nil {
				continue
			}
		}
		if r.isEjected() || r.phase == watched && r.ignores(now, t.Client.Addr()) {
			continue
		}
		r.tried(now, t)
		switch {
		case r.phase == watched && now.Before(r.strangersUntil):
			if d.hasEvidence(now, r) {
				r.phase = suspect
			}
		case r.phase == watched && count(r.recent(d.window(now))) >= minTries:
			r.phase = suspect
		case r.phase == onTrial && d.hasEvidence(now, r):
			r.phase = lost
		}
	}
}

// record begins a record of an endpoint. It returns nil if there is no room
// for one.
func (d *Detector) record(p *port, e Endpoint) *record {
	if !d.limit.Take(e.Namespace, 1) {
		return nil
	}
	d.begun++
	r := &record{Endpoint: e, port: p, order: d.begun}
	p.records[e.Addr] = r
	d.at[e.Addr] = append(d.at[e.Addr], r)
	return r
}

func (d *Detector) forget(r *record) {
	if r.isListed() {
		d.changed[r.Port] = struct{}{}
	}
	delete(r.port.records, r.Addr)
	if d.at[r.Addr] = slices.DeleteFunc(d.at[r.Addr], func(o *record) bool { return o == r }); len(d.at[r.Addr]) == 0 {
		delete(d.at, r.Addr)
	}
	d.limit.Return(r.Namespace, 1)
}

// Answers records the connections that an endpoint has answered, for an
// endpoint of Orders.Looks.
func (d *Detector) Answers(now time.Time, e Endpoint, answers []Answer) {
	if p := d.ports[e.Port]; p != nil && p.looking && p.answering == e.Addr {
		p.lookAtOthers(now, answers)
	}
	r := d.known(e)
	if r == nil {
		return
	}
	switch r.phase {
	case suspect:
		r.look(now, answers)
		r.phase, r.sent, r.waiting, r.ejection.Probes = probed, 0, 0, 0
		r.nextProbe = now
		if len(r.clients) == 0 || d.hasEvidence(now, r) {
			r.port.wantControl(now)
		}
	case returning:
		r.look(now, answers)
		d.putOnTrial(now, r)
	case lost:
		if slices.ContainsFunc(answers, r.isNew) {
			d.clear(now, r)
			return
		}
		d.eject(now, r)
	}
}

// ignores reports whether tries of a client are ignored at a time.
func (r *record) ignores(now time.Time, client netip.Addr) bool {
	return now.Before(r.restUntil) || now.Before(r.strangersUntil) && !r.counts(now, client)
}

// clear records that a suspect is alive, or that its state cannot be told.
func (d *Detector) clear(now time.Time, r *record) {
	d.endTrial(r)
	r.keepSome(r.tries)
	r.restUntil = r.rest(now)
	r.phase, r.tries = watched, nil
}

// clearStrangers records that the tries of a suspect are no evidence.
func (d *Detector) clearStrangers(now time.Time, r *record) {
	d.endTrial(r)
	r.keepSome(r.tries)
	r.strangersUntil, r.phase = r.rest(now), watched
	r.tries = slices.DeleteFunc(r.tries, func(t try) bool { return !r.counts(now, t.client.Addr()) })
}

// rest returns the end of a rest that begins now. Each one is longer than the
// last.
func (r *record) rest(now time.Time) time.Time {
	lasts := min(firstRest<<r.rests, lastRest)
	if lasts < lastRest {
		r.rests++
	}
	return now.Add(lasts)
}

func (d *Detector) eject(now time.Time, r *record) {
	r.phase, r.applied, r.isTried = ejected, r.isTried, false
	evidence := d.evidence(now, r)
	r.ejection = cluster.Ejection{
		Endpoint: r.Addr, Since: now, Attempts: count(evidence), Clients: clientsOf(evidence),
		Probes: r.ejection.Probes,
	}
	r.keepSome(r.tries)
	d.extend(now, r)
}

// extend determines how long an ejection lasts from now on: longer than the
// last one.
func (d *Detector) extend(now time.Time, r *record) {
	if r.level == 0 || timeOf(r.level) < maxTime {
		r.level++
	}
	lasts := timeOf(r.level)
	// Ejections that begin together end together, although they do not begin in
	// the same millisecond: their trials share walks.
	r.ejection.Until = now.Add(lasts + time.Second/2).Round(time.Second)
	r.nextProbe = now.Add(min(lasts/2, maxProbeInterval))
	d.changed[r.Port] = struct{}{}
}

// putOnTrial ends an ejection whose endpoint has not answered the last probe.
// Its clients show whether it is dead: a network policy may drop the probes.
func (d *Detector) putOnTrial(now time.Time, r *record) {
	r.phase, r.isTried, r.tries, r.heard, r.unresolved = onTrial, true, nil, time.Time{}, false
	r.trialUntil, r.decay, r.nextProbe = now.Add(trialTime), now.Add(baseTime), now.Add(trialProbe)
	d.changed[r.Port] = struct{}{}
}

// endTrial forgets what probes found, and ends the trial of an endpoint that is
// on trial.
func (d *Detector) endTrial(r *record) {
	r.unresolved = false
	if r.isTried {
		r.isTried = false
		d.changed[r.Port] = struct{}{}
	}
}

// isListed reports whether an endpoint is ejected or on trial.
func (r *record) isListed() bool { return r.isEjected() || r.isTried }

// isEjected reports whether an endpoint is ejected.
func (r *record) isEjected() bool { return r.phase == ejected || r.phase == returning }

// timeOf returns how long an ejection lasts.
func timeOf(level int) time.Duration { return min(baseTime<<(level-1), maxTime) }

// Targets are the endpoints that a service port uses for clients with each
// traffic policy, ejected ones included, sorted.
type Targets struct{ Cluster, Local []netip.AddrPort }

func (t Targets) lists() [2][]netip.AddrPort { return [2][]netip.AddrPort{t.Cluster, t.Local} }

// canLose reports whether an endpoint is in a list that may lose one.
func (t Targets) canLose(addr netip.AddrPort) bool {
	for _, list := range t.lists() {
		if cluster.MaxEjected(len(list)) > 0 && contains(list, addr) {
			return true
		}
	}
	return false
}

// contains reports whether a sorted list has an address.
func contains(list []netip.AddrPort, addr netip.AddrPort) bool {
	_, found := slices.BinarySearchFunc(list, addr, netip.AddrPort.Compare)
	return found
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
	known.targets = t
	for _, r := range known.records {
		if !t.canLose(r.Addr) || r.isListed() && r.applied && !contains(ejections, r.Addr) {
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
	return r != nil && r.isEjected()
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
	for r := range d.listed(key) {
		r.applied = true
	}
}

// listed returns the records of the endpoints of a service port that are
// ejected or on trial.
func (d *Detector) listed(key Port) iter.Seq[*record] {
	return func(yield func(*record) bool) {
		p := d.ports[key]
		if p == nil {
			return
		}
		for _, r := range p.records {
			if r.isListed() && !yield(r) {
				return
			}
		}
	}
}

// Ejections returns the endpoints of a service port that are ejected or on
// trial, and those of them whose ejection is not Applied, both sorted.
func (d *Detector) Ejections(key Port) (all []cluster.Ejection, begun []netip.AddrPort) {
	for r := range d.listed(key) {
		ejection := r.ejection
		ejection.OnTrial = r.isTried
		all = append(all, ejection)
		if !r.applied {
			begun = append(begun, r.Addr)
		}
	}
	slices.SortFunc(all, func(a, b cluster.Ejection) int { return a.Endpoint.Compare(b.Endpoint) })
	slices.SortFunc(begun, netip.AddrPort.Compare)
	return all, begun
}
