package main

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
	"github.com/nftproxy/nftproxy/test/lab"
	"github.com/nftproxy/nftproxy/test/oracle"
	"github.com/nftproxy/nftproxy/test/random"
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

// judge computes what is allowed, with the oracle.
type judge struct {
	history *history
	names   map[netip.Addr]string // of servers
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
	for _, v := range services {
		for _, endpoints := range combinations {
			for _, node := range r.via.possible(endpoints) {
				a.choices++
				j.add(&a, r, v.service, node, endpoints)
			}
		}
	}
	return a, true
}

// mayReach reports whether a connection that failed could lead to an endpoint.
func (j *judge) mayReach(f failure, endpoint string) bool {
	const moment = 5 * time.Second
	a, ok := j.allowed(f.route, f.via.knownAt(f.from.Add(-moment)), f.via.knownAt(f.from), f.end)
	return !ok || a.servers[endpoint]
}

// add adds what one state allows. All configurations recognize the pods of the
// node, and not the client outside the cluster.
func (j *judge) add(
	a *allowed, r route, service *cluster.Service, node *cluster.Node, endpoints []*cluster.Endpoint,
) {
	state := oracle.Cluster{
		Config: oracle.Config{DetectLocalMode: "ClusterCIDR", ClusterCIDRs: lab.PodRanges()},
		Node:   node, Addrs: node.IPs,
	}
	if service != nil {
		state.Services = []*cluster.Service{service}
		state.Endpoints = map[cluster.ServiceName][]*cluster.Endpoint{service.Name: endpoints}
	}
	for _, o := range state.Outcomes(oracle.Connection{
		Source: r.source(), Destination: r.to, Protocol: r.port.Protocol,
	}) {
		name, known := j.names[o.Endpoint.Addr()]
		if o.Action != oracle.ToEndpoint || !known ||
			o.Endpoint.Port() != random.FirstTarget && o.Endpoint.Port() != random.SecondTarget {
			a.silence = true
			continue
		}
		a.servers[name] = true
		// An endpoint of another node answers the client directly, around this
		// node.
		a.silence = a.silence || r.outside && !o.Masqueraded && !r.via.has(o.Endpoint.Addr())
	}
}
