package table

import (
	"net/netip"
	"slices"

	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
)

// port returns a service port of TCP, nil if there is none.
func (d *desired) port(name cluster.PortName) *portState {
	s := d.services[name.ServiceName]
	if s == nil || s.spec == nil {
		return nil
	}
	i := slices.IndexFunc(s.ports, func(p *portState) bool {
		return !p.removed && p.port.Name == name.Port && p.port.Protocol == cluster.TCP
	})
	if i < 0 {
		return nil
	}
	return s.ports[i]
}

// portAt returns the service port to which clients connect with a destination,
// nil if there is none.
func (d *desired) portAt(destination netip.AddrPort, protocol cluster.Protocol) *portState {
	f := ruleset.Frontend{Addr: destination.Addr(), Port: destination.Port(), Proto: protocol}
	p := d.claims.owner(f)
	if p == nil {
		f.Addr = netip.Addr{} // a NodePort
		p = d.claims.owner(f)
	}
	if p == nil || p.service.spec == nil {
		return nil
	}
	return p
}

// PortAt returns the service port to which clients connect with a destination.
// ok is false if there is none.
func (t *Table) PortAt(destination netip.AddrPort, protocol cluster.Protocol) (name cluster.PortName, ok bool) {
	p := t.desired.portAt(destination, protocol)
	if p == nil {
		return cluster.PortName{}, false
	}
	return p.name(), true
}

// Ejectable returns the service port of TCP to which clients connect with a
// destination. ok is false if there is none, or if its endpoints are never
// ejected.
func (t *Table) Ejectable(destination netip.AddrPort) (name cluster.PortName, ok bool) {
	p := t.desired.portAt(destination, cluster.TCP)
	if p == nil || p.service.spec.NoEject {
		return cluster.PortName{}, false
	}
	return p.name(), true
}

// Ejected returns the endpoints that plans in the kernel leave out.
func (t *Table) Ejected() map[cluster.PortName][]netip.AddrPort {
	all := make(map[cluster.PortName][]netip.AddrPort)
	for p := range t.desired.ejections {
		if plan := p.plan(); plan != nil && plan.Ejected != nil {
			name := p.name()
			for _, e := range plan.Ejected.All() {
				all[name] = append(all[name], e.Endpoint)
			}
		}
	}
	return all
}

// apiServer is the Service whose endpoints are the API servers.
var apiServer = cluster.ServiceName{Namespace: "default", Name: "kubernetes"}

// IsInfrastructure reports whether an endpoint has the address of a Service, of
// a NodePort of this node, or of an API server. The node must not connect to
// these because an EndpointSlice has them.
func (t *Table) IsInfrastructure(at netip.AddrPort) bool {
	d := &t.desired
	frontend := ruleset.Frontend{Addr: at.Addr(), Port: at.Port(), Proto: cluster.TCP}
	if d.node.IsServiceAddr(at.Addr()) || d.claims.owner(frontend) != nil {
		return true
	}
	if slices.Contains(d.node.LocalIPs, at.Addr()) && d.claims.owner(nodePort(frontend)) != nil {
		return true
	}
	s := d.services[apiServer]
	isAt := func(e *cluster.Endpoint) bool { return e.Addr == at.Addr() }
	return s != nil && slices.ContainsFunc(s.endpoints, isAt)
}

// Usable are the endpoints of a service port of TCP that can be ejected: those
// of Plan.Usable, which takes some time for many endpoints.
type Usable struct {
	Plan    *ruleset.Plan // of the kernel, nil if there is none
	Service *cluster.Service
	// Ejected are the endpoints whose ejections are known, sorted, without
	// those that are unhealthy.
	Ejected []netip.AddrPort
}

// Usable returns the endpoints that a service port of TCP uses. ok is false if
// there is none, or if its endpoints are never ejected.
func (t *Table) Usable(name cluster.PortName) (u Usable, ok bool) {
	p := t.desired.port(name)
	if p == nil || p.service.spec.NoEject {
		return Usable{}, false
	}
	u.Plan, u.Service = p.plan(), p.service.spec
	for _, e := range t.desired.ejections[p] {
		if !e.Unhealthy() {
			u.Ejected = append(u.Ejected, e.Endpoint)
		}
	}
	return u, true
}

// SetEjections sets the ejected endpoints of a service port of TCP, and which
// of them are new, both sorted. Endpoints that it does not use are ignored. So
// are those whose ejection the Table had and has ended since, because the API
// changed the endpoint. SetEjections reports whether the endpoints change: this
// takes effect with the next Sync, which writes only this service port.
func (t *Table) SetEjections(name cluster.PortName, all []cluster.Ejection, begun []netip.AddrPort) (changed bool) {
	d := &t.desired
	d.mergeEndpoints()
	u, ok := t.Usable(name)
	if !ok {
		return false
	}
	all = slices.DeleteFunc(slices.Clone(all), func(e cluster.Ejection) bool {
		if hasAddr(begun, e.Endpoint) {
			return !u.Plan.IsUsable(e.Endpoint)
		}
		return !hasAddr(u.Ejected, e.Endpoint)
	})
	return d.replaceEjections(d.port(name), all, false)
}

// SetUnhealthy sets the endpoints of a service port of TCP that fail health
// checks, sorted. It reports whether the endpoints change, as SetEjections
// does.
func (t *Table) SetUnhealthy(name cluster.PortName, all []cluster.Ejection) (changed bool) {
	p := t.desired.port(name)
	if p == nil || p.service.spec.HealthCheck == nil {
		return false
	}
	return t.desired.replaceEjections(p, all, true)
}

// replaceEjections replaces the ejections of a service port of one kind.
func (d *desired) replaceEjections(p *portState, all []cluster.Ejection, unhealthy bool) (changed bool) {
	others := slices.DeleteFunc(slices.Clone(d.ejections[p]), func(e cluster.Ejection) bool {
		return e.Unhealthy() == unhealthy
	})
	all = slices.Concat(all, others)
	slices.SortFunc(all, cluster.Ejection.Compare)
	return d.setEjections(p, all)
}

// hasAddr reports whether a sorted list has an address. A service port can have
// thousands of endpoints, and thousands of ejections.
func hasAddr(all []netip.AddrPort, a netip.AddrPort) bool {
	_, found := slices.BinarySearchFunc(all, a, netip.AddrPort.Compare)
	return found
}

func (d *desired) setEjections(p *portState, all []cluster.Ejection) (changed bool) {
	before := d.ejections[p]
	if len(all) == 0 {
		delete(d.ejections, p)
	} else {
		d.ejections[p] = all
	}
	same := func(a, b cluster.Ejection) bool { return a.Compare(b) == 0 && a.OnTrial == b.OnTrial }
	if slices.EqualFunc(before, all, same) {
		return false
	}
	d.dirty[p.service] = struct{}{}
	d.touch(p)
	return true
}

// endEjections ends the ejections of the endpoints of a Service that changed,
// except those that are unhealthy: the next check shows whether they still are.
func (d *desired) endEjections(s *serviceState, before []*cluster.Endpoint) {
	for _, p := range s.ports {
		d.endEjectionsIf(p, func(e cluster.Ejection) bool {
			addr := e.Endpoint.Addr()
			was, is := endpointsAt(before, addr), endpointsAt(s.endpoints, addr)
			return !e.Unhealthy() && !slices.EqualFunc(was, is, (*cluster.Endpoint).Equal)
		})
	}
}

// endEjectionsIf ends the ejections of a service port that meet a condition.
func (d *desired) endEjectionsIf(p *portState, ended func(cluster.Ejection) bool) {
	if ejections := d.ejections[p]; len(ejections) > 0 {
		d.setEjections(p, slices.DeleteFunc(slices.Clone(ejections), ended))
	}
}

// endpointsAt returns the endpoints with an address, of a list that is sorted
// by address.
func endpointsAt(all []*cluster.Endpoint, addr netip.Addr) []*cluster.Endpoint {
	compare := func(e *cluster.Endpoint, a netip.Addr) int { return e.Addr.Compare(a) }
	from, _ := slices.BinarySearchFunc(all, addr, compare)
	to := from
	for to < len(all) && all[to].Addr == addr {
		to++
	}
	return all[from:to]
}

// listEjections returns the number of endpoints that plans in the kernel leave
// out, the first of them, and the first service ports that use all of theirs,
// and those without a healthy one.
func (d *desired) listEjections() (n int, all []PortEjection, allUsed, noneHealthy []string) {
	var first, open, unhealthy []*portState
	for p := range d.ejections {
		plan := p.plan()
		if plan == nil || plan.Ejected == nil {
			continue
		}
		if ejected := len(plan.Ejected.All()); ejected > 0 {
			n += ejected
			first = insertPort(first, p)
		}
		if plan.Ejected.Open {
			open = insertPort(open, p)
		}
		if plan.Ejected.NoneHealthy {
			unhealthy = insertPort(unhealthy, p)
		}
	}
	for _, p := range first {
		for _, e := range p.plan().Ejected.All() {
			if len(all) < maxListed {
				all = append(all, PortEjection{p.String(), d.latest(p, e)})
			}
		}
	}
	return n, all, portNames(open), portNames(unhealthy)
}

func portNames(all []*portState) (names []string) {
	for _, p := range all {
		names = append(names, p.String())
	}
	return names
}

// insertPort inserts a service port in a sorted list of the first maxListed
// ones.
func insertPort(first []*portState, p *portState) []*portState {
	if n := len(first); n == maxListed {
		if comparePorts(p, first[n-1]) > 0 {
			return first
		}
		first = first[:n-1]
	}
	i, _ := slices.BinarySearchFunc(first, p, comparePorts)
	return slices.Insert(first, i, p)
}

// latest returns the present state of an ejection in a plan.
func (d *desired) latest(p *portState, e cluster.Ejection) cluster.Ejection {
	same := func(o cluster.Ejection) bool { return o.Compare(e) == 0 }
	if i := slices.IndexFunc(d.ejections[p], same); i >= 0 {
		return d.ejections[p][i]
	}
	return e
}
