package table

import (
	"slices"

	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
)

// setPorts makes the service ports of s, and the frontends that they claim,
// equal to its spec.
func (d *desired) setPorts(s *serviceState) {
	kept := make(map[*portState]bool, len(s.spec.Ports))
	ports := make([]*portState, 0, len(s.spec.Ports))
	find := s.portFinder()
	for i, port := range s.spec.Ports {
		p := find(i, keyOf(port))
		if p == nil {
			d.lastTag++
			p = &portState{service: s, port: port, tag: d.lastTag}
			d.ports[p.tag] = p
		}
		p.removed, p.index = false, int32(i)
		kept[p] = true
		ports = append(ports, p)
	}
	d.removePorts(s, func(p *portState) bool { return !kept[p] })
	for _, p := range s.ports {
		if p.removed {
			ports = append(ports, p)
		}
	}
	s.ports = ports
	addrs := ruleset.AddressesOf(d.family, s.spec)
	if s.reduced != nil {
		addrs = s.reduced.LimitAddresses(addrs)
	}
	for i, port := range s.spec.Ports {
		d.claimFrontends(ports[i], port, ruleset.FrontendsAt(s.spec, addrs, port))
	}
}

// portKey identifies a service port of a Service.
type portKey struct {
	name     string
	protocol cluster.Protocol
}

func keyOf(p cluster.ServicePort) portKey { return portKey{p.Name, p.Protocol} }

// portFinder returns a function that returns the service port of s with a key,
// nil if there is none. The port is usually at position i.
func (s *serviceState) portFinder() func(i int, key portKey) *portState {
	var byKey map[portKey]*portState
	return func(i int, key portKey) *portState {
		if i < len(s.ports) && keyOf(s.ports[i].port) == key {
			return s.ports[i]
		}
		if byKey == nil {
			byKey = make(map[portKey]*portState, len(s.ports))
			for _, p := range s.ports {
				byKey[keyOf(p.port)] = p
			}
		}
		return byKey[key]
	}
}

// removePorts releases the frontends of service ports. Their state stays until
// they are removed from the kernel (see forget).
func (d *desired) removePorts(s *serviceState, which func(*portState) bool) {
	for _, p := range s.ports {
		if p.removed || !which(p) {
			continue
		}
		for _, w := range p.wants {
			d.claims.release(w.Frontend, p, d.markDirty)
		}
		p.wants, p.removed = nil, true
	}
}

// claimFrontends claims the frontends of a service port, and releases those
// that it no longer has.
func (d *desired) claimFrontends(p *portState, port cluster.ServicePort, wants []ruleset.ServedFrontend) {
	before := p.wants
	if !p.created.Equal(p.service.spec.Created) { // the age is part of the claim
		for _, w := range before {
			d.claims.release(w.Frontend, p, d.markDirty)
		}
		before = nil
	}
	p.created, p.port, p.wants = p.service.spec.Created, port, wants
	for _, w := range without(before, wants) {
		d.claims.release(w.Frontend, p, d.markDirty)
	}
	for _, w := range without(wants, before) {
		d.claims.add(w.Frontend, claim{p, w.Kind}, d.markDirty)
	}
}

// without returns the frontends of a that are not in b with the same kind.
func without(a, b []ruleset.ServedFrontend) (out []ruleset.ServedFrontend) {
	same := func(x, y ruleset.ServedFrontend) bool { return x.Frontend == y.Frontend && x.Kind == y.Kind }
	switch {
	case len(b) == 0:
		return a
	case slices.EqualFunc(a, b, same):
		return nil
	}
	kinds := make(map[ruleset.Frontend]ruleset.AddressKind, len(b))
	for _, f := range b {
		kinds[f.Frontend] = f.Kind
	}
	for _, f := range a {
		if kind, ok := kinds[f.Frontend]; !ok || kind != f.Kind {
			out = append(out, f)
		}
	}
	return out
}

// owned returns the frontends that a service port owns.
func (d *desired) owned(p *portState) []ruleset.ServedFrontend {
	owns := func(f ruleset.ServedFrontend) bool { return d.claims.owner(f.Frontend) == p }
	i := slices.IndexFunc(p.wants, func(f ruleset.ServedFrontend) bool { return !owns(f) })
	if i < 0 {
		return p.wants
	}
	out := slices.Clone(p.wants[:i])
	for _, f := range p.wants[i+1:] {
		if owns(f) {
			out = append(out, f)
		}
	}
	return out
}
