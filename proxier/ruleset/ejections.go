package ruleset

import (
	"net/netip"
	"slices"

	"github.com/nftproxy/nftproxy/proxier/cluster"
)

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
