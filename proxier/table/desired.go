package table

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
)

// desired is the state that the source passed, and which parts of it changed
// since the last sync.
type desired struct {
	family      nft.Family
	node        *cluster.Node
	nodeChanged bool
	services    map[cluster.ServiceName]*serviceState
	served      int                   // number of services with a spec
	ports       map[uint32]*portState // by tag
	freeTags    []uint32              // of service ports that are forgotten
	claims      claims
	budgets     budgets
	dirty       map[*serviceState]struct{} // that changed
	edited      map[*serviceState]struct{} // that have edits
}

func newDesired(f nft.Family, config *Config) desired {
	return desired{
		family:   f,
		node:     &cluster.Node{},
		services: make(map[cluster.ServiceName]*serviceState),
		ports:    make(map[uint32]*portState),
		claims:   newClaims(config.OwnPorts),
		budgets: budgets{
			Budgets: config.Rules.Budgets, config: &config.Rules,
			namespaces: make(map[string]*namespaceRows), reduced: make(map[*serviceState]struct{}),
		},
		dirty:  make(map[*serviceState]struct{}),
		edited: make(map[*serviceState]struct{}),
	}
}

// serviceState is the desired state of one Service.
type serviceState struct {
	name cluster.ServiceName
	// spec is nil if the source passed endpoints only.
	spec *cluster.Service
	// endpoints are sorted by address and source. The slice may belong to the
	// source, so it is replaced and never modified.
	endpoints []*cluster.Endpoint
	weighted  bool  // an endpoint has another weight than the default
	edits     edits // of endpoints, by source
	// ports are the ports of spec, in its order, followed by removed ones until
	// the next commit.
	ports []*portState
	// rows is the number of rows within the Service's own budget. reduced is
	// nil if its budgets cover the whole Service.
	rows    int
	reduced *reduced
	// invalidEndpoints is the last note about endpoints that are ignored, "" if
	// there is none.
	invalidEndpoints string
	// deferred reports whether the change of a heavy service port waits, and
	// nothing changed since (see parts.go).
	deferred bool
	pace     pace
}

// portState is the desired state of one service port.
type portState struct {
	service *serviceState
	port    cluster.ServicePort
	created time.Time
	// removed reports whether the Service no longer has the port.
	removed bool
	// wants are the frontends that the service port claims.
	wants []ruleset.ServedFrontend
	// index is the position among the ports of the Service, negative for one
	// that it does not have.
	index int32
	// tag identifies the service port in batches, and in the rows of its
	// targets if it has many (see ruleset.Plan.Number).
	tag uint32
	// pending reports whether the service port changed since it was written.
	pending bool
	written time.Time // end of its last heavy part
}

func (p *portState) name() string { return p.service.name.WithPort(p.port.Name) }

// comparePorts orders service ports by Service, name and protocol.
func comparePorts(p, q *portState) int {
	return cmp.Or(p.service.name.Compare(q.service.name),
		strings.Compare(p.port.Name, q.port.Name),
		cmp.Compare(p.port.Protocol, q.port.Protocol))
}

// setNode sets the node and the addresses on which its NodePorts listen.
func (d *desired) setNode(n *cluster.Node, nodePortAddrs []netip.Addr) {
	before := *d.node
	before.LocalIPs = n.LocalIPs // only claims depend on them
	d.node = n
	d.claims.setNodeAddrs(n.LocalIPs, nodePortAddrs, d.markDirty)
	if before.Equal(n) {
		return
	}
	d.nodeChanged = true
	for _, s := range d.services {
		d.markDirty(s)
	}
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
	d.markDirty(s)
}

func (d *desired) deleteService(name cluster.ServiceName) {
	s := d.services[name]
	if s == nil || s.spec == nil {
		return
	}
	d.removePorts(s, func(*portState) bool { return true })
	d.served--
	d.setSpec(s, nil)
	s.reduced = nil
	delete(d.budgets.reduced, s)
	d.markDirty(s)
}

func (d *desired) setSpec(s *serviceState, spec *cluster.Service) {
	check := func(svc *cluster.Service) uint16 {
		if svc == nil {
			return 0
		}
		return svc.HealthCheckNodePort
	}
	d.claims.setCheck(s, check(s.spec), check(spec), d.markDirty)
	s.spec = spec
}

// service returns the state of a Service, and creates it if necessary.
func (d *desired) service(name cluster.ServiceName) *serviceState {
	s := d.services[name]
	if s == nil {
		s = &serviceState{name: name}
		d.services[name] = s
	}
	return s
}

func (d *desired) markDirty(s *serviceState) {
	d.dirty[s] = struct{}{}
	s.deferred = false
	for _, p := range s.ports {
		p.pending = true
	}
}

// isPending reports whether a service port of s is not written yet.
func (s *serviceState) isPending() bool {
	return slices.ContainsFunc(s.ports, func(p *portState) bool { return p.pending })
}

// dirtyServices returns the Services that changed, sorted by name.
func (d *desired) dirtyServices() []*serviceState {
	return slices.SortedFunc(maps.Keys(d.dirty), compareServices)
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

func compareServices(a, b *serviceState) int { return a.name.Compare(b.name) }

// forget deletes the removed service ports of s that are not in the kernel, and
// s itself if nothing of it is left.
func (d *desired) forget(s *serviceState, committed *committed) {
	s.ports = slices.DeleteFunc(s.ports, func(p *portState) bool {
		if p.removed && committed.plans[p] == nil {
			delete(d.ports, p.tag)
			d.freeTags = append(d.freeTags, p.tag)
			return true
		}
		return false
	})
	if s.spec == nil && len(s.endpoints) == 0 && s.edits == nil && len(s.ports) == 0 && d.services[s.name] == s {
		delete(d.services, s.name)
	}
}

// reportInvalidEndpoints records an event for each changed Service that has
// endpoints in a service CIDR, once for each set of such endpoints.
func (t *Table) reportInvalidEndpoints() {
	for _, s := range t.desired.dirtyServices() {
		if s.deferred {
			continue // nothing changed since the last sync
		}
		var invalid []string
		for _, e := range s.endpoints {
			if t.desired.node.IsServiceAddr(e.Addr) {
				invalid = append(invalid, e.Addr.String())
			}
		}
		note := ""
		if len(invalid) > 0 {
			note = fmt.Sprintf("Endpoints of Service %s are ignored, because they are in a service CIDR: %s",
				s.name, summary(invalid))
		}
		if note != s.invalidEndpoints && note != "" && s.spec != nil {
			t.record(cluster.NewEvent(s.spec, cluster.ReasonInvalid, note))
		}
		s.invalidEndpoints = note
	}
}

// summary joins the first values of a list.
func summary(values []string) string {
	const limit = 5
	if len(values) <= limit {
		return strings.Join(values, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(values[:limit], ", "), len(values)-limit)
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

// keyOf returns what identifies a service port within its Service.
func keyOf(p cluster.ServicePort) cluster.ServicePort {
	return cluster.ServicePort{Name: p.Name, Protocol: p.Protocol}
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
