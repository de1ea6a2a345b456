package ruleset

import (
	"cmp"
	"encoding/json"
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

// EndpointPlace is where an endpoint is.
type EndpointPlace struct {
	Addr netip.Addr `json:"address"`
	// Port is 0 if the endpoint does not have the service port.
	Port uint16 `json:"port,omitempty"`
	// Node is the node of the endpoint, "" if it is unknown.
	Node string `json:"node,omitempty"`
	// Pod is the name of the pod, "" if the endpoint is no known pod.
	Pod string `json:"pod,omitempty"`
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
	Cluster Use `json:"cluster"`
	Local   Use `json:"local"`
	// Ejection is not nil if one of them is UnusedEjected, or if the endpoint
	// is unhealthy, although it may be used.
	Ejection *cluster.Ejection `json:"ejection,omitempty"`
}

// Use is the reason why an endpoint is not used, "" if it is used.
type Use Code

// useJSON is a Use in JSON.
type useJSON struct {
	Used   bool   `json:"used"`
	Reason Code   `json:"reason,omitempty"`
	Text   string `json:"text,omitempty"`
}

// MarshalJSON implements json.Marshaler: an object with the reason, its text,
// and whether the endpoint is used.
func (u Use) MarshalJSON() ([]byte, error) {
	return json.Marshal(useJSON{u == "", Code(u), Code(u).Text(Facts{})})
}

// UnmarshalJSON implements json.Unmarshaler.
func (u *Use) UnmarshalJSON(data []byte) error {
	var v useJSON
	err := json.Unmarshal(data, &v)
	*u = Use(v.Reason)
	return err
}

// For returns the reason why traffic with a policy does not use the endpoint.
func (u *EndpointUse) For(policy cluster.Policy) Code {
	if policy == cluster.PolicyLocal {
		return Code(u.Local)
	}
	return Code(u.Cluster)
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
		return why.Text(Facts{})
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

// ejection returns the ejection of an endpoint that is unhealthy, or that is
// not used because of it, nil for others.
func (in *PlanInput) ejection(u *EndpointUse) *cluster.Ejection {
	at := netip.AddrPortFrom(u.Addr, u.Port)
	i, found := slices.BinarySearchFunc(in.Ejections, at, func(e cluster.Ejection, at netip.AddrPort) int {
		return e.Endpoint.Compare(at)
	})
	unused := u.For(cluster.PolicyCluster) == UnusedEjected || u.For(cluster.PolicyLocal) == UnusedEjected
	if !found || !unused && !in.Ejections[i].Unhealthy() {
		return nil
	}
	return &in.Ejections[i]
}

// selection are the endpoints that a service port uses, by address and port.
type selection struct {
	node           *cluster.Node
	candidates     map[netip.AddrPort]*cluster.Endpoint
	cluster, local map[netip.AddrPort]Code
	// hinted is why ready endpoints are not in cluster.
	hinted Code
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
func targetUses(targets []Target, in *PlanInput) map[netip.AddrPort]Code {
	uses := make(map[netip.AddrPort]Code, len(targets))
	for _, t := range targets {
		uses[t.AddrPort()] = UnusedBudget
	}
	selected := in.withoutEjected(targets)
	for _, e := range selected.ejected {
		uses[e.Endpoint] = UnusedEjected
	}
	for _, t := range in.Limits.targets(selected.targets) {
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
		EndpointPlace: EndpointPlace{e.Addr, n, e.Node, e.Pod}, OnThisNode: e.Node == s.node.Name, Source: e.Source,
		Ready: e.Ready, Serving: e.Serving, Terminating: e.Terminating,
	}
	if e.Hints != nil {
		u.Zones, u.Nodes = e.Hints.Zones, e.Hints.Nodes
	}
	both := Code("")
	switch {
	case s.node.IsServiceAddr(e.Addr):
		both = UnusedServiceCIDR
	case !ok:
		both = UnusedNoPort
	case s.candidates[at] != e:
		both = UnusedDuplicate
	}
	if u.Cluster, u.Local = Use(both), Use(both); both != "" {
		return u
	}
	forCluster, known := s.cluster[at]
	if !known {
		forCluster = byConditions(e, s.hinted)
	}
	forLocal, known := s.local[at]
	switch {
	case known:
	case !u.OnThisNode:
		forLocal = UnusedOtherNode
	default:
		forLocal = byConditions(e, "")
	}
	u.Cluster, u.Local = Use(forCluster), Use(forLocal)
	return u
}

// byConditions returns the reason why an endpoint that is not ready is not
// used, and otherwise the given reason.
func byConditions(e *cluster.Endpoint, otherwise Code) Code {
	switch {
	case e.Ready:
		return otherwise
	case e.Terminating:
		return UnusedTerminating
	}
	return UnusedNotReady
}
