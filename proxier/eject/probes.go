package eject

import (
	"cmp"
	"slices"
	"time"
)

// ProbeTimeout is how long a probe waits for an answer.
const ProbeTimeout = 500 * time.Millisecond

// Limits of probes, in any second.
const (
	MaxProbes             = 50
	MaxProbesPerNamespace = 10
)

// Probe is an attempt of this node to connect to an endpoint.
type Probe struct {
	Endpoint
	// Control reports whether the endpoint is not suspect.
	Control bool
}

// Result is the result of a probe.
type Result string

// Results of probes.
const (
	Answered   Result = "answered"   // by a SYN-ACK or a RST
	Lost       Result = "lost"       // no answer, or an ICMP error
	Unresolved Result = "unresolved" // no answer, and no link-layer address to send it to
	Failed     Result = "failed"     // this node could not send it
)

// Orders are what a Detector needs now.
type Orders struct {
	// Looks are the endpoints whose answered connections it needs to know
	// (see Detector.Answers).
	Looks []Endpoint
	// Probes are to be sent at once (see Detector.Probed).
	Probes []Probe
	// Walk is the time at which a walk is wanted, zero if none is.
	Walk time.Time
	// Wake is the time of the next call of Next, zero if only Tried leads to
	// orders.
	Wake time.Time
}

// Next returns what is needed now, and forgets what is old. Each probe is
// returned once, a look until its answers are there.
func (d *Detector) Next(now time.Time) (o Orders) {
	wake := func(at time.Time) {
		if o.Wake.IsZero() || at.Before(o.Wake) {
			o.Wake = at
		}
	}
	refused := make(map[string]bool) // namespaces
	for _, r := range d.waiting(now, wake, &o.Walk) {
		p, namespace := r.port, r.Namespace
		switch {
		case r.phase == lost && p.hasControl(now) && !d.hasEvidence(now, r):
			p.looking = true
			if other := (Endpoint{r.Port, p.answering}); !slices.Contains(o.Looks, other) {
				o.Looks = append(o.Looks, other)
			}
		case r.phase == suspect, r.phase == returning, r.phase == lost && p.hasControl(now):
			o.Looks = append(o.Looks, r.Endpoint)
		case r.phase == lost:
			p.wantControl(now)
			wake(now.Add(probeGap / 2))
		case refused[namespace] || !d.rate.use(namespace, now):
			refused[namespace] = true
			wake(now.Add(probeGap / 2))
		case r.phase == control:
			o.Probes = append(o.Probes, Probe{r.Endpoint, true})
			p.sent, p.control = true, r.Addr
		default:
			o.Probes = append(o.Probes, Probe{r.Endpoint, false})
			r.waiting++
			r.sent++
			if r.nextProbe = now.Add(probeGap); r.wantsProbe() {
				wake(r.nextProbe)
			}
		}
	}
	d.forgetPorts(now)
	return o
}

// waiting returns the records that need something now, in the order in which
// they should get it, and forgets what is old. Among them are records of
// controls, which are not kept.
func (d *Detector) waiting(now time.Time, wake func(time.Time), walk *time.Time) (all []*record) {
	for key, p := range d.ports {
		if p.wanted && !p.sent {
			switch addr, ok := p.nextControl(); {
			case ok:
				all = append(all, &record{Endpoint: Endpoint{key, addr}, port: p, phase: control})
			case !p.probing(): // the answer of a suspect counts, too
				d.beBlind(now, key, p)
			}
		}
		for _, r := range p.records {
			switch {
			case r.phase == lost && !d.hasEvidence(now, r) && !r.needsOthers(now):
				d.clearStrangers(now, r)
			case r.phase == lost && now.Before(d.observed(r)):
				wake(d.observed(r))
			case r.phase == onTrial && !now.Before(r.trialUntil):
				d.endTrial(r)
				r.phase = watched
			case r.phase == onTrial:
				if wake(r.trialUntil); !d.last.After(r.looked) {
					*walk = r.looked.Add(trialWait)
				}
				if r.wantsProbe() && !now.Before(r.nextProbe) {
					all = append(all, r)
				} else if r.wantsProbe() {
					wake(r.nextProbe)
				}
			case r.phase == suspect, r.phase == returning, r.phase == lost, r.wantsProbe() && !now.Before(r.nextProbe):
				all = append(all, r)
			case r.wantsProbe():
				wake(r.nextProbe)
			case r.phase == watched && d.isOld(now, r):
				d.forget(r)
			case r.phase == watched:
				wake(now.Add(time.Second))
			}
		}
	}
	slices.SortFunc(all, (*record).compare)
	d.takeTurns(now, all)
	return all
}

// compare orders the records that need something: first controls, then those
// that wait longest.
func (r *record) compare(o *record) int {
	if r.phase == control && o.phase == control {
		return r.Endpoint.Compare(o.Endpoint)
	}
	return cmp.Or(r.nextProbe.Compare(o.nextProbe), r.order-o.order)
}

// takeTurns sorts records so that namespaces take turns: first the one with the
// fewest probes in the last second.
func (d *Detector) takeTurns(now time.Time, all []*record) {
	turns := make(map[string]int)
	for _, r := range all {
		namespace := r.Namespace
		if _, known := turns[namespace]; !known {
			turns[namespace] = d.rate.used(namespace, now)
		}
		r.turn = turns[namespace]
		turns[namespace]++
	}
	slices.SortStableFunc(all, func(a, b *record) int { return a.turn - b.turn })
}

// wantsProbe reports whether a record needs a probe, now or later.
func (r *record) wantsProbe() bool {
	return r.phase == probed && r.sent < suspectProbes ||
		(r.phase == ejected || r.phase == onTrial) && r.waiting == 0
}

// Probed records the result of a probe.
func (d *Detector) Probed(now time.Time, probe Probe, result Result) {
	if probe.Control {
		d.controlled(now, probe, result)
		return
	}
	r := d.known(probe.Endpoint)
	if r == nil || r.waiting == 0 {
		return
	}
	r.waiting--
	switch {
	case r.phase == probed && (result == Lost || result == Unresolved):
		r.unresolved = result == Unresolved && (r.unresolved || r.ejection.Probes == 0)
		if r.ejection.Probes++; r.ejection.Probes == suspectProbes {
			r.phase = lost
		}
	case r.phase == probed:
		if result == Answered {
			r.heard = now
			r.port.heard(now, r.Addr)
		}
		d.clear(now, r)
	case r.isListed() && result == Answered:
		r.phase, r.isTried, r.unresolved, r.tries, r.waiting = watched, false, false, nil, 0
		r.heard, r.decay = now, now.Add(baseTime)
		d.changed[r.Port] = struct{}{}
	case r.phase == onTrial:
		r.unresolved, r.nextProbe = result == Unresolved, now.Add(trialProbe)
	case r.phase == ejected:
		d.stillLost(now, r, result)
	}
}

// stillLost records that an ejected endpoint did not answer a probe.
func (d *Detector) stillLost(now time.Time, r *record, result Result) {
	if result != Failed {
		r.ejection.Probes++
	}
	switch ends := !now.Before(r.ejection.Until); {
	case ends && result == Unresolved:
		d.extend(now, r)
		return
	case ends:
		r.phase = returning
		return
	}
	r.nextProbe = now.Add(min(timeOf(r.level)/2, maxProbeInterval))
	if r.nextProbe.After(r.ejection.Until) {
		r.nextProbe = r.ejection.Until
	}
	d.changed[r.Port] = struct{}{}
}

// controlled records the result of the probe of a control.
func (d *Detector) controlled(now time.Time, probe Probe, result Result) {
	p := d.ports[probe.Port]
	if p == nil || !p.sent || p.control != probe.Addr {
		return
	}
	p.sent = false
	if result != Answered {
		p.tried = append(p.tried, probe.Addr)
		return
	}
	p.heard(now, probe.Addr)
}

// isOld lets the level of a record decrease, and reports whether nothing of the
// record is needed any more.
func (d *Detector) isOld(now time.Time, r *record) bool {
	for r.level > 0 && !now.Before(r.decay) {
		r.level--
		r.decay = r.decay.Add(baseTime)
	}
	return r.level == 0 && len(r.recent(d.window(now))) == 0 && now.Sub(r.restUntil) > tryWindow &&
		now.Sub(r.strangersUntil) > tryWindow && now.Sub(r.heard) > memory && now.Sub(r.ejection.Until) > memory
}

// forgetPorts forgets the service ports without records.
func (d *Detector) forgetPorts(now time.Time) {
	for key, p := range d.ports {
		if len(p.records) == 0 && (!p.blind || now.Sub(p.blindUntil) > blindMemory) {
			delete(d.ports, key)
		}
	}
}

// rate limits probes: in any second there are at most MaxProbes, and
// MaxProbesPerNamespace of a namespace.
type rate struct {
	all        window
	namespaces map[string]*window
}

func newRate() *rate {
	return &rate{all: window{limit: MaxProbes}, namespaces: make(map[string]*window)}
}

func (r *rate) use(namespace string, now time.Time) bool {
	own := r.namespaces[namespace]
	if own == nil {
		if own = r.begin(namespace, now); own == nil {
			return false
		}
	}
	if !own.has(now) || !r.all.has(now) {
		return false
	}
	own.use(now)
	r.all.use(now)
	return true
}

// used returns the number of probes of a namespace in the last second.
func (r *rate) used(namespace string, now time.Time) int {
	own := r.namespaces[namespace]
	if own == nil {
		return 0
	}
	own.forget(now)
	return len(own.times)
}

// begin begins the window of a namespace, and forgets old ones.
func (r *rate) begin(namespace string, now time.Time) *window {
	if !r.all.has(now) {
		return nil
	}
	for name, w := range r.namespaces {
		if w.isEmpty(now) {
			delete(r.namespaces, name)
		}
	}
	w := &window{limit: MaxProbesPerNamespace}
	r.namespaces[namespace] = w
	return w
}

// window limits the number of uses in any second.
type window struct {
	limit int
	times []time.Time
}

func (w *window) has(now time.Time) bool {
	w.forget(now)
	return len(w.times) < w.limit
}

func (w *window) isEmpty(now time.Time) bool {
	w.forget(now)
	return len(w.times) == 0
}

func (w *window) use(now time.Time) { w.times = append(w.times, now) }

func (w *window) forget(now time.Time) {
	w.times = slices.DeleteFunc(w.times, func(t time.Time) bool { return now.Sub(t) >= time.Second })
}
