package main

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
	"github.com/nftproxy/nftproxy/test/apiserver/random"
	"github.com/nftproxy/nftproxy/test/lab"
)

// route is a way to a frontend, through the rules of one node.
type route struct {
	from     *lab.Namespace
	outside  bool // from is the client outside the cluster, not a node or a pod of one
	via      *node
	service  *cluster.Service
	port     cluster.ServicePort
	frontend ruleset.ServedFrontend
	to       netip.AddrPort
}

func (r route) String() string {
	return fmt.Sprintf("%s -> %s %s/%s of %s", r.from.Name, r.via.Name, r.to, r.port.Protocol, r.service.Name)
}

// steady reports whether each connection must succeed.
func (r route) steady() bool { return !strings.HasPrefix(r.service.Name.Name, "app-") }

// source returns the address that the connection comes from.
func (r route) source() netip.Addr { return r.from.AddrLike(r.to.Addr()) }

// families returns the families in the order of addresses in package lab.
func families() []nft.Family { return []nft.Family{nft.IPv4, nft.IPv6} }

// routes returns all routes to a Service.
func (w *world) routes(s *cluster.Service) (all []route) {
	for i, family := range families() {
		for _, port := range s.Ports {
			for _, f := range ruleset.FrontendsOf(family, s, port) {
				for _, n := range w.nodes {
					at := f.Addr
					if f.IsNodePort() {
						at = n.Addrs()[i]
					}
					to := netip.AddrPortFrom(at, f.Port)
					all = append(all, w.routesTo(route{via: n, service: s, port: port, frontend: f, to: to})...)
				}
			}
		}
	}
	return all
}

// routesTo returns a route from all origins.
func (w *world) routesTo(r route) (all []route) {
	n, f := r.via, r.frontend
	if slices.Contains(random.SecondAddrs(), r.to.Addr()) || !random.IsRouted(r.to.Addr()) {
		return nil // of several Services, and not always of the node
	}
	from := []*lab.Namespace{n.client.Namespace}
	if n == w.nodes[0] || f.IsNodePort() { // the client's routes lead to the first node
		from = append(from, w.Lab.Client)
	}
	if f.IsClusterIP() {
		from = append(from, n.Namespace)
	}
	for _, r.from = range from {
		r.outside = r.from == w.Lab.Client
		all = append(all, r)
	}
	return all
}

// allowed is what the rules of a node allow.
type allowed struct {
	servers map[string]bool
	silence bool // no answer is allowed
	choices int  // states that are possible
}

func (a allowed) String() string {
	out := slices.Sorted(maps.Keys(a.servers))
	if a.silence {
		out = append(out, "no answer")
	}
	return strings.Join(out, ", ")
}

// judge computes what is allowed by the plans of nftproxy.
type judge struct {
	history *history
	names   map[netip.Addr]string // of servers

	mu       sync.Mutex                      // guards the scratch memory of rulesets
	rulesets map[nft.Family]*ruleset.Ruleset // of any node: plans do not depend on the configuration
}

func newJudge(h *history, names map[netip.Addr]string) (*judge, error) {
	j := &judge{history: h, names: names, rulesets: map[nft.Family]*ruleset.Ruleset{}}
	for _, f := range families() {
		var err error
		if j.rulesets[f], err = ruleset.New(ruleset.Config{}, f); err != nil {
			return nil, err
		}
	}
	return j, nil
}

// allowed returns what is allowed on a route until end, if the node has
// followed all requests that were answered before known. It reports whether
// that can be known. See history.possible for earlier.
func (j *judge) allowed(r route, earlier, known, end time.Time) (a allowed, ok bool) {
	a.servers = map[string]bool{}
	services, combinations := j.history.possible(r.service.Name.Name, earlier, known, end)
	if services == nil {
		return a, false
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, v := range services {
		in := j.plans(r, v.service)
		for _, endpoints := range combinations {
			for _, node := range r.via.possible(endpoints) {
				a.choices++
				j.add(&a, r, in, node, endpoints)
			}
		}
	}
	return a, true
}

// plans returns the inputs of the plans that serve the frontend of a route,
// with this frontend alone: a Service can have thousands of others.
func (j *judge) plans(r route, service *cluster.Service) (all []ruleset.PlanInput) {
	if service == nil {
		return nil
	}
	other := func(f ruleset.ServedFrontend) bool { return f.Frontend != r.frontend.Frontend }
	for _, port := range service.Ports {
		frontends := ruleset.FrontendsOf(nft.FamilyOf(r.to.Addr()), service, port)
		if only := slices.DeleteFunc(frontends, other); len(only) > 0 {
			all = append(all, ruleset.PlanInput{Service: service, Port: port, Frontends: only})
		}
	}
	return all
}

// add adds what one state allows.
func (j *judge) add(a *allowed, r route, plans []ruleset.PlanInput, node *cluster.Node, endpoints []*cluster.Endpoint) {
	targets, kept := j.targets(r, plans, node, endpoints)
	if len(targets) == 0 {
		a.silence = true
	}
	for _, t := range targets {
		name, known := j.names[t.Addr]
		if !known || t.Port != random.FirstTarget && t.Port != random.SecondTarget {
			a.silence = true
			continue
		}
		a.servers[name] = true
		// An endpoint of another node answers the client directly, around this
		// node.
		a.silence = a.silence || kept && !r.via.has(t.Addr)
	}
}

// targets returns the targets of a route, and whether they see the address of
// a client outside the cluster. There are none if the rules drop or reject
// packets, whatever the endpoints are.
func (j *judge) targets(
	r route, plans []ruleset.PlanInput, node *cluster.Node, endpoints []*cluster.Endpoint,
) (targets []ruleset.Target, kept bool) {
	for _, in := range plans {
		in.Node, in.Endpoints = node, endpoints
		plan, err := j.rulesets[nft.FamilyOf(r.to.Addr())].MakePlan(&in)
		if err != nil || plan == nil || len(plan.Frontends) == 0 {
			continue
		}
		f := plan.Frontends[0]
		from := func(p netip.Prefix) bool { return p.Contains(r.source()) }
		if f.Kind == ruleset.LoadBalancerIP && plan.Guarded && !slices.ContainsFunc(plan.Sources, from) {
			return nil, false
		}
		if f.Policy == cluster.PolicyLocal && (f.IsClusterIP() || r.outside) {
			return plan.Local, !f.IsClusterIP()
		}
		return plan.Cluster, false
	}
	return nil, false
}
