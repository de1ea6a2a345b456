package ruleset

import (
	"net/netip"
	"slices"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
)

// EndpointPlace is where an endpoint is.
type EndpointPlace struct {
	Addr netip.Addr `json:"address"`
	// Port is 0 if the endpoint does not have the service port.
	Port uint16 `json:"port,omitempty"`
	// Node is the node of the endpoint, "" if it is unknown.
	Node string `json:"node,omitempty"`
}

// String returns the address, with the port if there is one.
func (p EndpointPlace) String() string {
	if p.Port == 0 {
		return p.Addr.String()
	}
	return netip.AddrPortFrom(p.Addr, p.Port).String()
}

// EndpointUse is an endpoint, and how a service port uses it.
type EndpointUse struct {
	EndpointPlace
	// OnThisNode reports whether Node is this node.
	OnThisNode bool `json:"onThisNode"`
	// Source is the name of the EndpointSlice.
	Source      string `json:"endpointSlice"`
	Ready       bool   `json:"ready"`
	Serving     bool   `json:"serving"`
	Terminating bool   `json:"terminating"`
	// Zones and Nodes are those whose clients should use the endpoint (hints).
	Zones []string `json:"hintedZones,omitempty"`
	Nodes []string `json:"hintedNodes,omitempty"`
	// Cluster and Local are the reasons why traffic with policy Cluster and
	// Local does not use the endpoint, "" if it does.
	Cluster Unused `json:"cluster"`
	Local   Unused `json:"local"`
	// Ejection is not nil if one of them is UnusedEjected.
	Ejection *cluster.Ejection `json:"ejection,omitempty"`
}

// For returns the reason why traffic with a policy does not use the endpoint.
func (u *EndpointUse) For(policy cluster.Policy) Unused {
	if policy == cluster.PolicyLocal {
		return u.Local
	}
	return u.Cluster
}

// Why returns why traffic with a policy does not use the endpoint, for people,
// "" if it does.
func (u *EndpointUse) Why(policy cluster.Policy) string {
	switch why := u.For(policy); why {
	case "":
		return ""
	case UnusedEjected:
		return u.Ejection.String()
	default:
		return why.Text()
	}
}

// EndpointUses returns how a service port uses each of its endpoints of a
// family, as a plan made of the same input does.
func EndpointUses(f nft.Family, in *PlanInput) []EndpointUse {
	s := newSelection(f, in)
	var out []EndpointUse
	for _, e := range in.Endpoints {
		if f.Of(e.Addr) {
			u := s.use(e, in.Port)
			u.Ejection = in.ejection(&u)
			out = append(out, u)
		}
	}
	return out
}

// ejection returns the ejection of an endpoint that is not used because of it,
// nil for others.
func (in *PlanInput) ejection(u *EndpointUse) *cluster.Ejection {
	if u.Cluster != UnusedEjected && u.Local != UnusedEjected {
		return nil
	}
	at := netip.AddrPortFrom(u.Addr, u.Port)
	i := slices.IndexFunc(in.Ejections, func(e cluster.Ejection) bool { return e.Endpoint == at })
	return &in.Ejections[i]
}

// selection are the endpoints that a service port uses, by address and port.
type selection struct {
	node           *cluster.Node
	candidates     map[netip.AddrPort]*cluster.Endpoint
	cluster, local map[netip.AddrPort]Unused
	// hinted is why ready endpoints are not in cluster.
	hinted Unused
}

func newSelection(f nft.Family, in *PlanInput) *selection {
	all := candidates(nil, in.Endpoints, f, in.Port, in.Node)
	s := &selection{
		node: in.Node, candidates: make(map[netip.AddrPort]*cluster.Endpoint, len(all)),
		cluster: targetUses(usableForCluster(all, in.Node), in),
		local:   targetUses(usableForLocal(all, in.Node), in),
		hinted:  UnusedZoneHints,
	}
	for _, c := range all {
		s.candidates[c.AddrPort()] = c.Endpoint
	}
	if _, ok := hinted(highestRank(all), in.Node.Name, func(h *cluster.Hints) []string { return h.Nodes }); ok {
		s.hinted = UnusedNodeHints
	}
	return s
}

// targetUses returns how targets are used: "" for those within the limits that
// have a weight.
func targetUses(targets []Target, in *PlanInput) map[netip.AddrPort]Unused {
	uses := make(map[netip.AddrPort]Unused, len(targets))
	for _, t := range targets {
		uses[t.AddrPort()] = UnusedBudget
	}
	left, ejected, _ := in.withoutEjected(targets)
	for _, e := range ejected {
		uses[e.Endpoint] = UnusedEjected
	}
	for _, t := range in.Limits.targets(left) {
		uses[t.AddrPort()] = ""
		if IsWeightless(in.Service, t.Weight) {
			uses[t.AddrPort()] = UnusedWeight
		}
	}
	return uses
}

// use returns how a service port uses an endpoint.
func (s *selection) use(e *cluster.Endpoint, port cluster.ServicePort) EndpointUse {
	n, ok := endpointPort(e, port)
	at := netip.AddrPortFrom(e.Addr, n)
	u := EndpointUse{
		EndpointPlace: EndpointPlace{e.Addr, n, e.Node}, OnThisNode: e.Node == s.node.Name, Source: e.Source,
		Ready: e.Ready, Serving: e.Serving, Terminating: e.Terminating,
	}
	if e.Hints != nil {
		u.Zones, u.Nodes = e.Hints.Zones, e.Hints.Nodes
	}
	both := Unused("")
	switch {
	case s.node.IsServiceAddr(e.Addr):
		both = UnusedServiceCIDR
	case !ok:
		both = UnusedNoPort
	case s.candidates[at] != e:
		both = UnusedDuplicate
	}
	if u.Cluster, u.Local = both, both; both != "" {
		return u
	}
	var known bool
	if u.Cluster, known = s.cluster[at]; !known {
		u.Cluster = byConditions(e, s.hinted)
	}
	switch u.Local, known = s.local[at]; {
	case known:
	case !u.OnThisNode:
		u.Local = UnusedOtherNode
	default:
		u.Local = byConditions(e, "")
	}
	return u
}

// byConditions returns the reason why an endpoint that is not ready is not
// used, and otherwise the given reason.
func byConditions(e *cluster.Endpoint, otherwise Unused) Unused {
	switch {
	case e.Ready:
		return otherwise
	case e.Terminating:
		return UnusedTerminating
	}
	return UnusedNotReady
}
