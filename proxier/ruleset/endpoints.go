package ruleset

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
)

// candidate is an endpoint that serves a service port.
type candidate struct {
	Target
	*cluster.Endpoint
}

// candidates appends to found the endpoints of a family that serve a service
// port, sorted by address and port. Of several endpoints with the same address
// and port it takes one of the highest rank, with the highest of their weights.
func candidates(
	found []candidate, endpoints []*cluster.Endpoint, f nft.Family, port cluster.ServicePort, node *cluster.Node,
) []candidate {
	var ports []cluster.EndpointPort // of the endpoint before
	var n uint16
	var ok bool
	for _, e := range endpoints {
		if !f.Of(e.Addr) || node.IsServiceAddr(e.Addr) {
			continue
		}
		// Endpoints of one slice share their ports, of which there can be
		// hundreds.
		if len(e.Ports) == 0 || len(ports) != len(e.Ports) || &ports[0] != &e.Ports[0] {
			ports = e.Ports
			n, ok = endpointPort(e, port)
		}
		if ok {
			here := e.Node == "" || e.Node == node.Name
			found = append(found, candidate{Target{Addr: e.Addr, Port: n, Here: here, Weight: e.Weight}, e})
		}
	}
	slices.SortFunc(found, func(a, b candidate) int {
		return cmp.Or(a.AddrPort().Compare(b.AddrPort()), b.Rank()-a.Rank())
	})
	same := func(a, b candidate) bool { return a.AddrPort() == b.AddrPort() }
	for i := len(found) - 1; i > 0; i-- {
		if before := &found[i-1]; same(*before, found[i]) {
			before.Target.Weight = max(before.Target.Weight, found[i].Target.Weight)
		}
	}
	return slices.CompactFunc(found, same)
}

// endpointPort returns the port on which an endpoint serves a service port. ok
// reports whether there is one.
func endpointPort(e *cluster.Endpoint, port cluster.ServicePort) (n uint16, ok bool) {
	want := cluster.EndpointPort{Name: port.Name, Protocol: port.Protocol}
	i, ok := slices.BinarySearchFunc(e.Ports, want, cluster.EndpointPort.Compare)
	if !ok {
		return 0, false
	}
	return TargetPort(e.Ports[i], port), true
}

// TargetPort returns the number of the port on which an endpoint serves a
// service port.
func TargetPort(at cluster.EndpointPort, port cluster.ServicePort) uint16 {
	return cmp.Or(at.Port, port.Port) // 0 stands for all ports
}

// usableForCluster returns the endpoints for traffic with policy Cluster: the
// ready ones that hints select, or, if none is ready, those that are serving
// and terminating (KEP-1669).
func usableForCluster(all []candidate, node *cluster.Node) []Target {
	return targets(byHints(highestRank(all), node))
}

// usableForLocal returns the endpoints for traffic with policy Local. Hints do
// not apply, and the fallback to terminating endpoints considers this node
// only.
func usableForLocal(all []candidate, node *cluster.Node) []Target {
	local := only(all, func(c candidate) bool { return c.Node == node.Name })
	return targets(highestRank(local))
}

// highestRank returns the ready endpoints, or, if none is ready, the serving
// and terminating ones.
func highestRank(all []candidate) []candidate {
	highest := 0
	for _, c := range all {
		highest = max(highest, c.Rank())
	}
	return only(all, func(c candidate) bool { return highest > 0 && c.Rank() == highest })
}

// only returns the endpoints for which keep returns true.
func only(all []candidate, keep func(candidate) bool) (found []candidate) {
	if !slices.ContainsFunc(all, func(c candidate) bool { return !keep(c) }) {
		return all
	}
	for _, c := range all {
		if keep(c) {
			found = append(found, c)
		}
	}
	return found
}

// byHints returns the ready endpoints with a hint for this node, or else for
// its zone. It returns all of them unless every one has such a hint and at
// least one hint names this node or zone (KEP-2433, KEP-3015).
func byHints(ready []candidate, node *cluster.Node) []candidate {
	if len(ready) == 0 || !ready[0].Ready {
		return ready
	}
	if found, ok := hinted(ready, node.Name, func(h *cluster.Hints) []string { return h.Nodes }); ok {
		return found
	}
	if found, ok := hinted(ready, node.Zone, func(h *cluster.Hints) []string { return h.Zones }); ok {
		return found
	}
	return ready
}

// hinted returns the endpoints whose hints contain a name. ok is false if an
// endpoint has no hints, or no hint contains the name.
func hinted(all []candidate, name string, hints func(*cluster.Hints) []string) (found []candidate, ok bool) {
	if name == "" {
		return nil, false
	}
	for _, c := range all {
		if c.Hints == nil || len(hints(c.Hints)) == 0 {
			return nil, false
		}
		if slices.Contains(hints(c.Hints), name) {
			found = append(found, c)
		}
	}
	return found, len(found) > 0
}

// servingOf returns the endpoints that answer, including those that get no new
// traffic.
func servingOf(all []candidate) []netip.AddrPort {
	out := make([]netip.AddrPort, 0, len(all))
	for _, c := range all {
		if c.Ready || c.Serving {
			out = append(out, c.AddrPort())
		}
	}
	return out
}

func targets(all []candidate) []Target {
	if len(all) == 0 {
		return nil
	}
	out := make([]Target, len(all))
	for i, c := range all {
		out[i] = c.Target
	}
	return out
}

// arrange orders targets. Targets that are in before keep their index where
// possible, so that a change of one target changes few rows: a new target takes
// the index of a removed one, and the last targets fill the remaining gaps.
func arrange(before, now []Target) []Target {
	same := func(a, b Target) bool { return a.Addr == b.Addr && a.Port == b.Port }
	if len(before) == 0 || slices.EqualFunc(before, now, same) {
		return now
	}
	wanted := make(map[netip.AddrPort]Target, len(now))
	for _, t := range now {
		wanted[t.AddrPort()] = t
	}
	out := make([]Target, len(now))
	for i, t := range before {
		if w, ok := wanted[t.AddrPort()]; ok && i < len(out) {
			out[i] = w
			delete(wanted, t.AddrPort())
		}
	}
	at := 0
	for _, t := range now {
		if _, left := wanted[t.AddrPort()]; !left {
			continue
		}
		for out[at].Addr.IsValid() {
			at++
		}
		out[at] = t
	}
	return out
}

// Ejected are the endpoints that a plan leaves out because they are ejected.
type Ejected struct {
	// Cluster and Local would be among the targets of these names.
	Cluster, Local []cluster.Ejection
	// OnTrial are endpoints that are used although they answered no probe.
	OnTrial []netip.AddrPort
	// Open reports whether a list uses its ejected endpoints, because they are
	// more than half of it.
	Open bool
	// NoneHealthy reports whether no endpoint of a list is healthy. It uses
	// those that became unhealthy last.
	NoneHealthy bool
}

// All returns the endpoints that are left out of any list. The caller must not
// modify them.
func (e *Ejected) All() []cluster.Ejection {
	if e == nil {
		return nil
	}
	all := slices.Clip(e.Cluster)
	for _, local := range e.Local {
		same := func(o cluster.Ejection) bool { return o.Endpoint == local.Endpoint }
		if !slices.ContainsFunc(e.Cluster, same) {
			all = append(all, local)
		}
	}
	return all
}

// usable returns all endpoints that the service port uses for traffic with a
// policy while none of them is ejected, except those with weight 0, sorted.
func (p *Plan) usable(policy cluster.Policy) (all []netip.AddrPort) {
	targets, left := p.Cluster, []cluster.Ejection(nil)
	if policy == cluster.PolicyLocal {
		targets = p.Local
	}
	if e := p.Ejected; e != nil && policy == cluster.PolicyLocal {
		left = e.Local
	} else if e != nil {
		left = e.Cluster
	}
	for _, t := range targets {
		if !IsWeightless(p.Service, t.Weight) {
			all = append(all, t.AddrPort())
		}
	}
	for _, e := range left {
		all = append(all, e.Endpoint)
	}
	slices.SortFunc(all, netip.AddrPort.Compare)
	return all
}

// Usable returns the endpoints that the service port uses for traffic with the
// policies Cluster and Local while none of them is ejected, except those with
// weight 0.
func (p *Plan) Usable() (forCluster, forLocal []netip.AddrPort) {
	if p == nil {
		return nil, nil
	}
	return p.usable(cluster.PolicyCluster), p.usable(cluster.PolicyLocal)
}

// IsUsable reports whether Usable returns an endpoint.
func (p *Plan) IsUsable(at netip.AddrPort) bool {
	if p == nil {
		return false
	}
	uses := func(t Target) bool { return t.AddrPort() == at && !IsWeightless(p.Service, t.Weight) }
	if slices.ContainsFunc(p.Cluster, uses) || slices.ContainsFunc(p.Local, uses) {
		return true
	}
	isAt := func(e cluster.Ejection) bool { return e.Endpoint == at }
	e := p.Ejected
	return e != nil && (slices.ContainsFunc(e.Cluster, isAt) || slices.ContainsFunc(e.Local, isAt))
}

// selected are the targets of a list that are used, and the ejections of the
// others.
type selected struct {
	targets []Target
	ejected []cluster.Ejection
	onTrial []netip.AddrPort
	// open and noneHealthy are those of Ejected.
	open, noneHealthy bool
}

// withoutEjected returns the targets that are used. First those leave that are
// unhealthy: if all are, the last ones stay. Then those leave that do not
// answer clients, except those on trial: if they are more than
// cluster.MaxEjected, all stay, and open reports whether there is more than
// one.
func (in *PlanInput) withoutEjected(all []Target) selected {
	s := selected{targets: all}
	if len(in.Ejections) == 0 {
		return s
	}
	unhealthy, usable := in.ejected(s.targets, cluster.Ejection.Unhealthy)
	if s.noneHealthy = len(unhealthy) > 0 && len(unhealthy) == usable; s.noneHealthy {
		unhealthy = in.withoutLast(unhealthy)
	}
	s.leaveOut(unhealthy)
	silent, usable := in.ejected(s.targets, func(e cluster.Ejection) bool { return !e.Unhealthy() })
	if len(silent) > cluster.MaxEjected(usable) {
		s.open, silent = usable > 1, nil
	}
	s.leaveOut(slices.DeleteFunc(silent, func(e cluster.Ejection) bool {
		if e.OnTrial {
			s.onTrial = append(s.onTrial, e.Endpoint)
		}
		return e.OnTrial
	}))
	return s
}

// ejected returns the ejections of a kind of the targets with a weight, and the
// number of these targets.
func (in *PlanInput) ejected(all []Target, kind func(cluster.Ejection) bool) (found []cluster.Ejection, usable int) {
	ejections := make(map[netip.AddrPort]cluster.Ejection, len(in.Ejections))
	for _, e := range in.Ejections {
		if kind(e) {
			ejections[e.Endpoint] = e
		}
	}
	for _, t := range all {
		if IsWeightless(in.Service, t.Weight) {
			continue
		}
		usable++
		if e, ok := ejections[t.AddrPort()]; ok {
			found = append(found, e)
		}
	}
	return found, usable
}

// withoutLast returns the ejections without the last ones: what makes all
// endpoints unhealthy at a time, such as a fault of this node, does so within
// two periods of the health check.
func (in *PlanInput) withoutLast(all []cluster.Ejection) (earlier []cluster.Ejection) {
	last := slices.MaxFunc(all, func(a, b cluster.Ejection) int { return a.Since.Compare(b.Since) })
	since := last.Since.Add(-2 * in.Service.HealthCheck.Period())
	return slices.DeleteFunc(all, func(e cluster.Ejection) bool { return !e.Since.Before(since) })
}

// leaveOut leaves out the targets with these ejections.
func (s *selected) leaveOut(ejections []cluster.Ejection) {
	if len(ejections) == 0 {
		return
	}
	out := make(map[netip.AddrPort]struct{}, len(ejections))
	for _, e := range ejections {
		out[e.Endpoint] = struct{}{}
	}
	var left []Target
	for _, t := range s.targets {
		if _, ok := out[t.AddrPort()]; !ok {
			left = append(left, t)
		}
	}
	s.targets, s.ejected = left, append(s.ejected, ejections...)
}

// eject returns the lists of endpoints without ejected ones.
func (p *Plan) eject(in *PlanInput, forCluster, forLocal []Target) (leftCluster, leftLocal []Target) {
	c, l := in.withoutEjected(forCluster), in.withoutEjected(forLocal)
	e := Ejected{
		Cluster: c.ejected, Local: l.ejected, OnTrial: append(c.onTrial, l.onTrial...),
		Open: c.open || l.open, NoneHealthy: c.noneHealthy || l.noneHealthy,
	}
	if e.Open || e.NoneHealthy || len(e.Cluster)+len(e.Local)+len(e.OnTrial) > 0 {
		p.Ejected = &e
	}
	return c.targets, l.targets
}

// leaveUnhealthy removes the endpoints from Serving that are in no list because
// they are unhealthy: attempts to connect to them end.
func (p *Plan) leaveUnhealthy() {
	if p.Ejected == nil {
		return
	}
	out := make(map[netip.AddrPort]struct{})
	for _, e := range p.Ejected.All() {
		if e.Unhealthy() {
			out[e.Endpoint] = struct{}{}
		}
	}
	if len(out) == 0 {
		return
	}
	for _, t := range slices.Concat(p.Cluster, p.Local) {
		delete(out, t.AddrPort())
	}
	p.Serving = slices.DeleteFunc(p.Serving, func(a netip.AddrPort) bool {
		_, left := out[a]
		return left
	})
}
