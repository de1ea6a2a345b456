package proxier

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// serviceState is what is known of one Service.
type serviceState struct {
	name ServiceName
	// spec is nil while only endpoints are known.
	spec *Service
	// endpoints are sorted by address and source. The slice belongs to whoever told them, and is replaced rather than modified.
	endpoints []*Endpoint
	// ports are those of spec, in its order, and after them those that are gone but still in the kernel.
	ports []*portState
	// invalidEndpoints is what was last reported of endpoints that are ignored, ""
	// if nothing.
	invalidEndpoints string
}

// portState is what is known of one service port.
type portState struct {
	service *serviceState
	port    ServicePort
	created time.Time
	// gone says that the Service does not have it any more.
	gone bool
	// wants are the frontends that it asks for.
	wants []want
	// committed is what the kernel has of it, nil if nothing.
	committed *plan
	// refused is why the kernel does not take it, nil if it does. While it is tried once more, retried says that instead.
	refused, retried error
	// tag is its number in batches.
	tag uint32
	// scrubbed are its affinity chains as the scrubber found them.
	scrubbed scrubbedChains
}

// want is a frontend that a service port asks for.
type want struct {
	frontend
	kind frontendKind
}

func (p *portState) name() string { return servicePortName(p.service.name, p.port.Name) }

func compareServiceNames(a, b ServiceName) int {
	return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
}

func compareEndpointKeys(a, b EndpointKey) int {
	return cmp.Or(a.Addr.Compare(b.Addr), strings.Compare(a.Source, b.Source))
}

func (s *serviceState) find(key EndpointKey) (i int, found bool) {
	return slices.BinarySearchFunc(s.endpoints, key, func(e *Endpoint, key EndpointKey) int {
		return compareEndpointKeys(e.EndpointKey, key)
	})
}

// SetNode implements Sink.
func (b *Backend) SetNode(n *Node) {
	b.node, b.newNode = n, true
	for _, s := range b.services {
		b.markDirty(s)
	}
}

// SetService implements Sink. Services of the other family only are nothing to this backend.
func (b *Backend) SetService(svc *Service) {
	if !slices.Contains(svc.Families, b.layout.family) {
		b.DeleteService(svc.Name)
		return
	}
	s := b.service(svc.Name)
	s.spec = svc
	b.setPorts(s)
	b.markDirty(s)
}

// DeleteService implements Sink.
func (b *Backend) DeleteService(name ServiceName) {
	s := b.services[name]
	if s == nil || s.spec == nil {
		return
	}
	b.retire(s, func(*portState) bool { return true })
	s.spec = nil
	b.markDirty(s)
}

// SetEndpoints implements Sink.
func (b *Backend) SetEndpoints(name ServiceName, source string, endpoints []*Endpoint) {
	endpoints = b.ofFamily(endpoints)
	s := b.services[name]
	if s == nil && len(endpoints) == 0 {
		return
	}
	s = b.service(name)
	others, before := s.bySource(source)
	changed := !slices.EqualFunc(before, endpoints, (*Endpoint).equal)
	// Also those that are equal are replaced: endpoints of one source lie together in memory, and are to be let go together.
	if s.endpoints = endpoints; len(others) > 0 {
		s.endpoints = merge(others, endpoints)
	}
	if changed {
		b.markDirty(s)
	}
}

// ofFamily returns those endpoints that have addresses of the family.
func (b *Backend) ofFamily(endpoints []*Endpoint) []*Endpoint {
	its := func(e *Endpoint) bool { return b.layout.family.Of(e.Addr) }
	other := func(e *Endpoint) bool { return !its(e) }
	switch {
	case !slices.ContainsFunc(endpoints, its):
		return nil
	case !slices.ContainsFunc(endpoints, other):
		return endpoints
	}
	return slices.DeleteFunc(slices.Clone(endpoints), other)
}

// bySource returns the endpoints of a source, and those of others.
func (s *serviceState) bySource(source string) (others, its []*Endpoint) {
	another := func(e *Endpoint) bool { return e.Source != source }
	if !slices.ContainsFunc(s.endpoints, another) {
		return nil, s.endpoints
	}
	for _, e := range s.endpoints {
		if another(e) {
			others = append(others, e)
		} else {
			its = append(its, e)
		}
	}
	return others, its
}

// merge returns the endpoints of two sorted slices, sorted.
func merge(a, b []*Endpoint) []*Endpoint {
	all := make([]*Endpoint, 0, len(a)+len(b))
	for len(a) > 0 && len(b) > 0 {
		if compareEndpointKeys(a[0].EndpointKey, b[0].EndpointKey) <= 0 {
			all, a = append(all, a[0]), a[1:]
		} else {
			all, b = append(all, b[0]), b[1:]
		}
	}
	return append(append(all, a...), b...)
}

// SetEndpoint implements Sink.
func (b *Backend) SetEndpoint(name ServiceName, e *Endpoint) {
	if !b.layout.family.Of(e.Addr) {
		return
	}
	s := b.service(name)
	i, found := s.find(e.EndpointKey)
	if found && s.endpoints[i].equal(e) {
		return
	}
	s.endpoints = slices.Clone(s.endpoints)
	if found {
		s.endpoints[i] = e
	} else {
		s.endpoints = slices.Insert(s.endpoints, i, e)
	}
	b.markDirty(s)
}

// DeleteEndpoint implements Sink.
func (b *Backend) DeleteEndpoint(name ServiceName, key EndpointKey) {
	s := b.services[name]
	if s == nil {
		return
	}
	if i, found := s.find(key); found {
		s.endpoints = slices.Delete(slices.Clone(s.endpoints), i, i+1)
		b.markDirty(s)
	}
}

// Reset implements Sink. What is in the kernel stays there until the next Sync, which replaces it as a whole.
func (b *Backend) Reset() {
	for _, s := range b.services {
		if b.health != nil && s.spec != nil && s.spec.HealthCheckNodePort != 0 {
			b.health.DeleteService(s.name.Namespace, s.name.Name)
		}
		for _, p := range s.ports {
			b.ids.keep(p.committed)
		}
	}
	b.services = make(map[ServiceName]*serviceState)
	b.dirty = make(map[*serviceState]struct{})
	b.ports = make(map[uint32]*portState)
	b.claims, b.lost, b.conflicts = newClaims(), nil, make(map[conflict]struct{})
	b.refused = make(map[*portState]struct{})
	b.scrubber = scrubber{} // whose queue has the old service ports
	b.doubt("reset")
}

func (b *Backend) service(name ServiceName) *serviceState {
	s := b.services[name]
	if s == nil {
		s = &serviceState{name: name}
		b.services[name] = s
	}
	return s
}

func (b *Backend) markDirty(s *serviceState) { b.dirty[s] = struct{}{} }

// setPorts brings the service ports of s in line with its spec, and the frontends that they ask for.
func (b *Backend) setPorts(s *serviceState) {
	kept := make(map[*portState]bool)
	ports := make([]*portState, 0, len(s.spec.Ports))
	for _, port := range s.spec.Ports {
		p := b.portState(s, port)
		kept[p] = true
		ports = append(ports, p)
	}
	b.retire(s, func(p *portState) bool { return !kept[p] })
	for _, p := range s.ports {
		if p.gone {
			ports = append(ports, p)
		}
	}
	s.ports = ports
	for i, port := range s.spec.Ports {
		b.claimFrontends(ports[i], port)
	}
}

// portState returns the state of a service port, which is known by its name and protocol.
func (b *Backend) portState(s *serviceState, port ServicePort) *portState {
	for _, p := range s.ports {
		if p.port.Name == port.Name && p.port.Protocol == port.Protocol {
			p.gone = false
			return p
		}
	}
	b.lastTag++
	p := &portState{service: s, port: port, tag: b.lastTag}
	b.ports[p.tag] = p
	return p
}

// retire takes the frontends from service ports that are to go. They stay known until they are out of the kernel.
func (b *Backend) retire(s *serviceState, which func(*portState) bool) {
	for _, p := range s.ports {
		if p.gone || !which(p) {
			continue
		}
		for _, w := range p.wants {
			b.releaseFrontend(w.frontend, p)
		}
		p.wants, p.gone = nil, true
		b.accept(p)
	}
}

// claimFrontends asks for the frontends of a service port and gives back those
// that it does not want any more.
func (b *Backend) claimFrontends(p *portState, port ServicePort) {
	var wants []want
	for _, f := range frontendsOf(b.layout.family, p.service.spec, port) {
		wants = append(wants, want{f.frontend, f.kind})
	}
	before := p.wants
	if !p.created.Equal(p.service.spec.Created) { // another Service of the same name has another claim
		for _, w := range before {
			b.releaseFrontend(w.frontend, p)
		}
		before = nil
	}
	p.created, p.port, p.wants = p.service.spec.Created, port, wants
	for _, w := range before {
		if !slices.Contains(wants, w) {
			b.releaseFrontend(w.frontend, p)
		}
	}
	for _, w := range wants {
		if slices.Contains(before, w) {
			continue
		}
		if loser := b.claims.claim(w.frontend, claim{p, w.kind}); loser != nil {
			b.markDirty(loser.service)
			b.lost = append(b.lost, conflict{w.frontend, loser})
		}
	}
}

func (b *Backend) releaseFrontend(f frontend, p *portState) {
	delete(b.conflicts, conflict{f, p})
	if heir := b.claims.release(f, p); heir != nil {
		delete(b.conflicts, conflict{f, heir})
		b.markDirty(heir.service)
	}
}

// forget drops the service ports that are gone and out of the kernel, and the service if nothing of it is left.
func (b *Backend) forget(s *serviceState) {
	s.ports = slices.DeleteFunc(s.ports, func(p *portState) bool {
		if p.gone && p.committed == nil {
			delete(b.ports, p.tag)
			return true
		}
		return false
	})
	if s.spec == nil && len(s.endpoints) == 0 && len(s.ports) == 0 && b.services[s.name] == s {
		delete(b.services, s.name)
	}
}
