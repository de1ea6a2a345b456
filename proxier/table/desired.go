package table

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
	"github.com/nftproxy/nftproxy/proxier/table/keep"
)

// desired is the state that the source passed, and which parts of it changed
// since the last sync.
type desired struct {
	family   nft.Family
	node     *cluster.Node
	services map[cluster.ServiceName]*serviceState
	served   int                   // number of services with a spec
	ports    map[uint32]*portState // by tag
	freeTags []uint32              // of service ports that are forgotten
	claims   claims
	budgets  budgets
	dirty    map[*serviceState]struct{} // that are not written yet
	portless map[*serviceState]struct{} // of dirty, without service ports that the Keeper writes
	fresh    map[*serviceState]struct{} // that changed since the last sync
	edited   map[*serviceState]struct{} // that have edits
	touch    func(keep.Owner)           // Keeper.Touch

	namespaces map[string]*namespace
	emptied    map[*namespace]struct{} // without Services
	growing    map[*namespace]struct{} // whose Services get more of the budget
	// ejections are those of service ports, each sorted (see
	// cluster.Ejection.Compare).
	ejections map[*portState][]cluster.Ejection
	// holders are the service ports for which the kernel has rows of frontends
	// that move (see hold).
	holders map[ruleset.Frontend]*portState
}

func newDesired(f nft.Family, config ruleset.Config, ownPorts []netip.AddrPort) desired {
	return desired{
		family:   f,
		node:     &cluster.Node{},
		services: make(map[cluster.ServiceName]*serviceState),
		ports:    make(map[uint32]*portState),
		claims:   newClaims(ownPorts),
		budgets: budgets{
			Budgets: config.Budgets, config: &config, reduced: make(map[*serviceState]struct{}),
		},
		dirty:      make(map[*serviceState]struct{}),
		portless:   make(map[*serviceState]struct{}),
		fresh:      make(map[*serviceState]struct{}),
		edited:     make(map[*serviceState]struct{}),
		namespaces: make(map[string]*namespace),
		emptied:    make(map[*namespace]struct{}),
		growing:    make(map[*namespace]struct{}),
		ejections:  make(map[*portState][]cluster.Ejection),
		holders:    make(map[ruleset.Frontend]*portState),
	}
}

// setNode sets the node and the addresses on which its NodePorts listen. It
// reports whether the program may change.
func (d *desired) setNode(n *cluster.Node, nodePortAddrs []netip.Addr) bool {
	before := *d.node
	before.LocalIPs = n.LocalIPs // only claims depend on them
	d.node = n
	d.claims.setNodeAddrs(n.LocalIPs, nodePortAddrs, d.markDirty)
	if before.Equal(n) {
		return false
	}
	for _, s := range d.allServices() {
		d.markDirty(s)
	}
	return true
}

func (d *desired) setService(svc *cluster.Service) {
	if !slices.Contains(svc.Families, d.family) {
		d.deleteService(svc.Name)
		return
	}
	s := d.service(svc.Name)
	if s.spec == nil {
		d.served++
	}
	d.setSpec(s, svc)
	budget := d.budget(s)
	d.reduce(s, d.share(s, budget), budget)
	d.setPorts(s)
	d.setCheck(s)
	for _, p := range s.ports {
		d.endEjectionsIf(p, func(e cluster.Ejection) bool {
			return !e.Unhealthy() && svc.NoEject || e.Unhealthy() && svc.HealthCheck == nil
		})
	}
	d.markDirty(s)
}

func (d *desired) deleteService(name cluster.ServiceName) {
	s := d.services[name]
	if s == nil || s.spec == nil {
		return
	}
	d.removePorts(s, func(*portState) bool { return true })
	if s.check != nil {
		d.giveUp(s.check)
		s.check = nil
	}
	d.served--
	d.setSpec(s, nil)
	s.reduced = nil
	delete(d.budgets.reduced, s)
	d.markDirty(s)
}

func (d *desired) setSpec(s *serviceState, spec *cluster.Service) {
	s.namespace.place(s, spec)
	s.spec = spec
}

// service returns the state of a Service, and creates it if necessary.
func (d *desired) service(name cluster.ServiceName) *serviceState {
	s := d.services[name]
	if s == nil {
		s = &serviceState{name: name, namespace: d.namespace(name.Namespace)}
		s.namespace.states++
		d.services[name] = s
	}
	return s
}

func (d *desired) markDirty(s *serviceState) {
	d.fresh[s], d.dirty[s] = struct{}{}, struct{}{}
	if len(s.ports) == 0 {
		d.portless[s] = struct{}{}
	}
	for _, p := range s.ports {
		d.touch(p)
	}
}

// freshServices returns the Services that changed since the last sync, sorted
// by name.
func (d *desired) freshServices() []*serviceState {
	return slices.SortedFunc(maps.Keys(d.fresh), compareServices)
}

// allServices returns all Services, sorted by name.
func (d *desired) allServices() []*serviceState {
	return slices.SortedFunc(maps.Values(d.services), compareServices)
}

// countRows returns the number of rows, approximately.
func (d *desired) countRows() (n int) {
	for _, s := range d.services {
		if n += s.rows; s.reduced != nil {
			n += s.reduced.Rows - s.rows
		}
	}
	return n
}

// forget deletes the removed service ports of s that are not in the kernel, and
// s itself if nothing of it is left.
func (d *desired) forget(s *serviceState, forget func(keep.Owner)) {
	s.ports = slices.DeleteFunc(s.ports, func(p *portState) bool {
		gone := p.removed && p.kept.IsEmpty()
		if gone {
			forget(p)
			delete(d.ports, p.tag)
			d.freeTags = append(d.freeTags, p.tag)
		}
		return gone
	})
	if s.spec == nil && len(s.endpoints) == 0 && s.edits == nil && len(s.ports) == 0 && d.services[s.name] == s {
		delete(d.services, s.name)
		d.leave(s)
	}
}

// setPorts makes the service ports of s, and the frontends that they claim,
// equal to its spec, in which names and protocols of ports are unique.
func (d *desired) setPorts(s *serviceState) {
	before := make(map[cluster.ServicePort]*portState, len(s.ports))
	for _, p := range s.ports {
		before[keyOf(p.port)], p.index = p, -1
	}
	ports := make([]*portState, 0, len(s.spec.Ports))
	for i, port := range s.spec.Ports {
		p := before[keyOf(port)]
		if p == nil {
			p = &portState{service: s, port: port, tag: d.newTag()}
			d.ports[p.tag] = p
		}
		p.removed, p.index = false, int32(i)
		ports = append(ports, p)
	}
	d.removePorts(s, func(p *portState) bool { return p.index < 0 })
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

// setCheck makes the claim of the health-check NodePort of s equal to its spec.
func (d *desired) setCheck(s *serviceState) {
	var wants []ruleset.ServedFrontend
	if port := s.spec.HealthCheckNodePort; port != 0 {
		at := ruleset.Frontend{Port: port, Proto: cluster.TCP}
		wants = []ruleset.ServedFrontend{{Frontend: at, Kind: ruleset.NodePort}}
		if s.check == nil {
			s.check = &portState{service: s, check: true}
		}
	}
	if s.check != nil {
		d.claimFrontends(s.check, cluster.ServicePort{}, wants)
	}
}

// newTag returns a tag that no service port has. All are small, because numbers
// are.
func (d *desired) newTag() uint32 {
	n := len(d.freeTags)
	if n == 0 {
		return uint32(len(d.ports) + 1)
	}
	tag := d.freeTags[n-1]
	d.freeTags = d.freeTags[:n-1]
	return tag
}

// removePorts releases the frontends of service ports. Their state stays until
// they are removed from the kernel (see forget).
func (d *desired) removePorts(s *serviceState, which func(*portState) bool) {
	for _, p := range s.ports {
		if p.removed || !which(p) {
			continue
		}
		d.giveUp(p)
		p.removed = true
		delete(d.ejections, p)
	}
}

// giveUp releases all frontends of a service port.
func (d *desired) giveUp(p *portState) {
	for _, w := range p.wants {
		d.claims.release(w.Frontend, p, d.markDirty)
	}
	p.wants = nil
}

// claimFrontends claims the frontends of a service port, and releases those
// that it no longer has.
func (d *desired) claimFrontends(p *portState, port cluster.ServicePort, wants []ruleset.ServedFrontend) {
	if !p.created.Equal(p.service.spec.Created) { // the age is part of the claim
		d.giveUp(p)
	}
	before := p.wants
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
