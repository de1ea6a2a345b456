package eject

import (
	"net/netip"
	"slices"
	"time"
)

const (
	// controlTime is how long the answer of a control counts.
	controlTime = 10 * time.Second
	// maxControls is the number of controls that are probed, one after the
	// other.
	maxControls = 3
	// blindTime is how long a service port whose controls did not answer has no
	// suspects.
	blindTime = 10 * time.Second
	// blindMemory is how long it is remembered that a service port was blind,
	// so that there is one report about it.
	blindMemory = 10 * time.Minute
)

// port is what is known about a service port.
type port struct {
	targets Targets
	records map[netip.AddrPort]*record
	// control is the endpoint that was last probed as the control.
	control netip.AddrPort
	// wanted reports whether a control is needed. tried are the controls that
	// did not answer.
	wanted  bool
	sent    bool
	tried   []netip.AddrPort
	okUntil time.Time
	// answering is the last endpoint that answered a probe. others are clients
	// with tries that it has answered, as a look at othersAt showed. looking
	// reports whether such a look is wanted.
	answering netip.AddrPort
	others    map[netip.Addr]struct{}
	othersAt  time.Time
	looking   bool
	// blindUntil is the time until which probes prove nothing. blind reports
	// whether no control has answered since.
	blindUntil time.Time
	blind      bool
}

// wantControl begins a search for a control, unless one answered a moment ago.
func (p *port) wantControl(now time.Time) {
	if !p.wanted && !now.Before(p.okUntil) {
		p.wanted, p.sent, p.tried = true, false, nil
	}
}

// hasControl reports whether a control answered a moment ago.
func (p *port) hasControl(now time.Time) bool { return now.Before(p.okUntil) }

// heard records that an endpoint answered a probe, which makes it a control.
func (p *port) heard(now time.Time, at netip.AddrPort) {
	p.answering = at
	p.wanted, p.blind, p.okUntil = false, false, now.Add(controlTime)
}

// lookAtOthers records the clients with tries that the control has answered.
func (p *port) lookAtOthers(now time.Time, answers []Answer) {
	p.looking, p.othersAt, p.others = false, now, make(map[netip.Addr]struct{})
	tried := make(map[netip.Addr]struct{})
	for _, r := range p.records {
		for _, t := range r.tries {
			tried[t.client.Addr()] = struct{}{}
		}
	}
	for _, a := range answers {
		if _, ok := tried[a.Client]; ok {
			p.others[a.Client] = struct{}{}
		}
	}
}

// probing reports whether a suspect may still answer a probe.
func (p *port) probing() bool {
	for _, r := range p.records {
		if r.phase == suspect || r.phase == probed {
			return true
		}
	}
	return false
}

// nextControl returns the next endpoint to probe as a control: none that is
// suspect or ejected, one without unanswered attempts if possible, and the one
// after the last control, so that controls that answer nothing do not stay the
// first ones. ok is false if there is none.
func (p *port) nextControl() (addr netip.AddrPort, ok bool) {
	if len(p.tried) >= maxControls {
		return addr, false
	}
	for _, list := range p.targets.lists() {
		next, found := slices.BinarySearchFunc(list, p.control, netip.AddrPort.Compare)
		if found {
			next++
		}
		for i := range list {
			a := list[(next+i)%len(list)]
			r := p.records[a]
			if r != nil && r.phase != watched || slices.Contains(p.tried, a) {
				continue
			}
			if r == nil || len(r.tries) == 0 {
				return a, true
			}
			addr, ok = a, true
		}
	}
	return addr, ok
}

// beBlind records that the probes of a service port prove nothing.
func (d *Detector) beBlind(now time.Time, key Port, p *port) {
	if !p.blind {
		d.blinded = append(d.blinded, key)
	}
	p.blind, p.blindUntil, p.wanted = true, now.Add(blindTime), false
	for _, r := range p.records {
		if !r.isEjected() {
			d.clear(now, r)
		}
	}
}

// Blinded returns the service ports that became blind since the last call,
// sorted: none of several endpoints answered.
func (d *Detector) Blinded() []Port {
	all := d.blinded
	slices.SortFunc(all, Port.Compare)
	d.blinded = nil
	return all
}

// Blind returns the service ports that are blind, sorted.
func (d *Detector) Blind(now time.Time) (all []Port) {
	for key, p := range d.ports {
		if p.blind && now.Sub(p.blindUntil) < 2*blindTime {
			all = append(all, key)
		}
	}
	slices.SortFunc(all, Port.Compare)
	return all
}
