package oracle

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	"github.com/nftproxy/nftproxy/proxier/cluster"
)

// served returns the outcomes at a frontend of a service port.
func (c *Cluster) served(q Connection, s *servicePort) []Outcome {
	// ServiceSpec.loadBalancerSourceRanges restrict "traffic through the ...
	// load-balancer", not NodePorts or external IPs.
	if s.kind == loadBalancerIP && !c.allows(s.service, q.Source) {
		return one(Dropped, "SourceRange", s)
	}
	all := c.candidates(s, q.Destination.Addr())
	everywhere := c.byHints(usable(all))
	local := usable(slices.DeleteFunc(all, func(e endpoint) bool { return e.Node != c.Node.Name }))
	switch {
	case len(everywhere) == 0:
		// As in kube-proxy, a Service without an endpoint on any node refuses
		// connections, whatever its policies are.
		return one(Refused, "NoEndpoints", s)
	case s.kind == clusterIP && s.service.InternalPolicy == cluster.PolicyLocal:
		// ServiceSpec.internalTrafficPolicy Local (KEP-2086): "endpoints of the
		// service on the same node as the pod, dropping the traffic if there
		// are no local endpoints".
		return c.toOneOf(q, s, local, c.masqueradesInternal(q))
	case s.kind == clusterIP:
		return c.toOneOf(q, s, everywhere, c.masqueradesInternal(q))
	case s.service.ExternalPolicy == cluster.PolicyCluster:
		// ServiceSpec.externalTrafficPolicy Cluster: the node may forward to
		// another node, so the answer must come back through it. "Source IP for
		// Services" of kubernetes.io/docs/tutorials/services/source-ip.
		return c.toOneOf(q, s, everywhere, "ExternalPolicy")
	case c.isPod(q):
		// ServiceSpec.externalTrafficPolicy: "traffic sent to an External IP or
		// LoadBalancer IP from within the cluster will always get "Cluster"
		// semantics". As in kube-proxy, this includes NodePorts, and pods keep
		// their address, because the cluster routes it.
		return c.toOneOf(q, s, everywhere, "")
	case c.isLocal(q.Source):
		// The same for the node itself. Its address need not be one to which
		// other nodes answer.
		return c.toOneOf(q, s, everywhere, "FromNode")
	}
	// ServiceSpec.externalTrafficPolicy Local: "only to the node-local
	// endpoints of the service, without masquerading the client source IP.
	// (Traffic mistakenly sent to a node with no endpoints will be dropped.)"
	return c.toOneOf(q, s, local, "")
}

// masqueradesInternal returns the reason why traffic to a ClusterIP is
// masqueraded, "" if it is not.
func (c *Cluster) masqueradesInternal(q Connection) string {
	switch {
	case c.MasqueradeAll: // KubeProxyConfiguration.nftables.masqueradeAll
		return "MasqueradeAll"
	case c.knowsPods(q) && !c.isPod(q): // KubeProxyConfiguration.clusterCIDR: "off-cluster traffic"
		return "OutsideCluster"
	}
	return ""
}

// toOneOf returns the outcomes of a connection to one of some endpoints.
func (c *Cluster) toOneOf(q Connection, s *servicePort, endpoints []endpoint, masquerade string) (all []Outcome) {
	if len(endpoints) == 0 {
		return one(Dropped, "NoLocalEndpoints", s)
	}
	affinity := s.service.AffinityTimeout != 0
	if !affinity {
		// The annotation nftproxy.io/weight: an endpoint with weight 0 gets no
		// new connection. Session affinity has priority over weights.
		endpoints = slices.DeleteFunc(endpoints, func(e endpoint) bool { return e.weight == 0 })
	} else if i := slices.IndexFunc(endpoints, func(e endpoint) bool { return e.at == q.Last }); i >= 0 {
		// ServiceSpec.sessionAffinity ClientIP: the client keeps its endpoint.
		endpoints = endpoints[i : i+1]
	}
	if len(endpoints) == 0 {
		return one(Refused, "NoWeight", s)
	}
	for _, e := range endpoints {
		o := Outcome{Action: ToEndpoint, Service: s.service, Endpoint: e.at, Weight: e.weight, Reason: masquerade}
		if affinity {
			o.Weight = 1
		}
		if masquerade == "" && e.at.Addr() == q.Source && (e.Node == c.Node.Name || e.Node == "") {
			// A pod that reaches itself (debug-service of
			// kubernetes.io/docs/tasks/debug/debug-application) would drop
			// packets that have its own address as their source.
			o.Reason = "Hairpin"
		}
		// An address of the node: netfilter masquerades only what leaves it, or
		// comes from it.
		if c.isLocal(e.at.Addr()) && !c.isLocal(q.Source) {
			o.Reason = ""
		}
		o.Masqueraded = o.Reason != ""
		all = append(all, o)
	}
	slices.SortFunc(all, func(a, b Outcome) int { return a.Endpoint.Compare(b.Endpoint) })
	return all
}

// podRange returns the range by which the node recognizes pods, if it does so
// by their addresses.
func (c *Cluster) podRange(of netip.Addr) (netip.Prefix, bool) {
	prefixes := map[string][]netip.Prefix{
		"ClusterCIDR": c.ClusterCIDRs, "NodeCIDR": c.Node.PodCIDRs,
	}[c.DetectLocalMode]
	for _, p := range prefixes {
		if sameFamily(p.Addr(), of) {
			return p, true
		}
	}
	return netip.Prefix{}, false
}

// knowsPods reports whether the node recognizes pods
// (KubeProxyConfiguration.detectLocalMode, KEP-2450).
func (c *Cluster) knowsPods(q Connection) bool {
	_, byRange := c.podRange(q.Source)
	return byRange || c.DetectLocalMode == "BridgeInterface" || c.DetectLocalMode == "InterfaceNamePrefix"
}

// isPod reports whether the node recognizes the client as a pod.
func (c *Cluster) isPod(q Connection) bool {
	arrives := !c.isLocal(q.Source)
	switch c.DetectLocalMode {
	case "BridgeInterface":
		return arrives && q.Interface == c.BridgeInterface
	case "InterfaceNamePrefix":
		return arrives && strings.HasPrefix(q.Interface, c.InterfaceNamePrefix)
	}
	p, ok := c.podRange(q.Source)
	return ok && p.Contains(q.Source)
}

// endpoint is an endpoint of a service port.
type endpoint struct {
	*cluster.Endpoint
	at     netip.AddrPort
	weight int
}

// candidates returns the endpoints of a service port: those whose
// discovery.k8s.io/v1 EndpointPort has its name and protocol. Several slices
// can have the same endpoint (endpoint-slices, "Duplicate endpoints", of
// kubernetes.io/docs/concepts/services-networking). nftproxy takes the best of
// its conditions, and the highest of its weights.
func (c *Cluster) candidates(s *servicePort, like netip.Addr) (all []endpoint) {
	for _, e := range c.Endpoints[s.service.Name] {
		for _, port := range e.Ports {
			if port.Name != s.port.Name || port.Protocol != s.port.Protocol || !sameFamily(e.Addr, like) {
				continue
			}
			// A ClusterIP as an endpoint would be translated only once.
			if anyPrefix(c.Node.ServiceCIDRs, func(p netip.Prefix) bool { return p.Contains(e.Addr) }) {
				continue
			}
			// EndpointPort.port: "If this is not specified, all ports".
			at := netip.AddrPortFrom(e.Addr, cmp.Or(port.Port, s.port.Port))
			found := endpoint{e, at, e.Weight.Int()}
			i := slices.IndexFunc(all, func(o endpoint) bool { return o.at == at })
			if i < 0 {
				all = append(all, found)
				continue
			}
			found.weight = max(found.weight, all[i].weight)
			if condition(e) <= condition(all[i].Endpoint) {
				found.Endpoint = all[i].Endpoint
			}
			all[i] = found
		}
	}
	return all
}

// condition orders endpoints by EndpointConditions: ready, then serving and
// terminating, then those that must not be used.
func condition(e *cluster.Endpoint) int {
	switch {
	case e.Ready:
		return 2
	case e.Serving && e.Terminating:
		return 1
	}
	return 0
}

// usable returns the ready endpoints. If none is ready, it returns those that
// are serving and terminating (KEP-1669).
func usable(all []endpoint) (found []endpoint) {
	for least := 2; least > 0 && len(found) == 0; least-- {
		for _, e := range all {
			if condition(e.Endpoint) == least {
				found = append(found, e)
			}
		}
	}
	return found
}

// byHints returns the endpoints with hints for this node, or else for its zone
// (EndpointHints.forNodes, KEP-3015; forZones, KEP-2433). It returns all of
// them unless each is ready and has hints, and one has a hint for it
// (topology-aware-routing, "Safeguards", of
// kubernetes.io/docs/concepts/services-networking).
func (c *Cluster) byHints(all []endpoint) []endpoint {
	nodes := func(h *cluster.Hints) []string { return h.Nodes }
	zones := func(h *cluster.Hints) []string { return h.Zones }
	if found := hinted(all, c.Node.Name, nodes); len(found) > 0 {
		return found
	}
	if found := hinted(all, c.Node.Zone, zones); len(found) > 0 {
		return found
	}
	return all
}

func hinted(all []endpoint, name string, hints func(*cluster.Hints) []string) (found []endpoint) {
	for _, e := range all {
		if name == "" || !e.Ready || e.Hints == nil || len(hints(e.Hints)) == 0 {
			return nil
		}
		if slices.Contains(hints(e.Hints), name) {
			found = append(found, e)
		}
	}
	return found
}

// KeepsFlow reports whether a UDP flow to the endpoint Last stays: this is an
// endpoint of the service port that owns the destination, and it answers
// (EndpointConditions.ready, serving). As in kube-proxy, other flows are
// deleted: connection tracking would keep them as long as the client sends.
func (c *Cluster) KeepsFlow(q Connection) bool {
	s := c.owner(q)
	return s != nil && slices.ContainsFunc(c.candidates(s, q.Destination.Addr()), func(e endpoint) bool {
		return e.at == q.Last && (e.Ready || e.Serving)
	})
}

// IsConsistent reports whether all EndpointSlices agree whether an address is
// on this node (Endpoint.nodeName). If they do not, it is not defined whether a
// client with this address reaches itself.
func (c *Cluster) IsConsistent(client netip.Addr) bool {
	places := map[bool]bool{}
	for _, endpoints := range c.Endpoints {
		for _, e := range endpoints {
			if e.Addr == client {
				places[e.Node == c.Node.Name || e.Node == ""] = true
			}
		}
	}
	return len(places) < 2
}
