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
	// Open reports whether a list uses its ejected endpoints, because they are
	// more than half of it.
	Open bool
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

// withoutEjected returns the targets that are not ejected, and the ejections of
// the others. If these are more than cluster.MaxEjected, all targets are used,
// and open reports whether there is more than one.
func (in *PlanInput) withoutEjected(all []Target) (left []Target, ejected []cluster.Ejection, open bool) {
	if len(in.Ejections) == 0 {
		return all, nil, false
	}
	ejections := make(map[netip.AddrPort]cluster.Ejection, len(in.Ejections))
	for _, e := range in.Ejections {
		ejections[e.Endpoint] = e
	}
	usable := 0
	for _, t := range all {
		if IsWeightless(in.Service, t.Weight) {
			left = append(left, t)
			continue
		}
		usable++
		if e, ok := ejections[t.AddrPort()]; ok {
			ejected = append(ejected, e)
		} else {
			left = append(left, t)
		}
	}
	switch {
	case len(ejected) == 0:
		return all, nil, false
	case len(ejected) > cluster.MaxEjected(usable):
		return all, nil, usable > 1
	}
	return left, ejected, false
}

// eject returns the lists of endpoints without ejected ones.
func (p *Plan) eject(in *PlanInput, forCluster, forLocal []Target) (leftCluster, leftLocal []Target) {
	var e Ejected
	var open bool
	forCluster, e.Cluster, e.Open = in.withoutEjected(forCluster)
	forLocal, e.Local, open = in.withoutEjected(forLocal)
	e.Open = e.Open || open
	if e.Open || len(e.Cluster)+len(e.Local) > 0 {
		p.Ejected = &e
	}
	return forCluster, forLocal
}
