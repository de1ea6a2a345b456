package ruleset

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"

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

// Lack is why new connections to a service port reach no endpoint. It is more
// precise than Reach.Reason, because it also considers endpoints that no plan
// has, such as those that are not ready.
type Lack struct {
	// Of is the reason in the Reach, which decides what happens to packets.
	Of Code `json:"of"`
	// Reason is more precise, or the same. It then has no text.
	Reason
	// Short is the reason as part of a line about the service port.
	Short string `json:"short"`
}

// lack returns the lack for a reason, with its text.
func (c Code) lack(short, format string, args ...any) Lack {
	return Lack{Reason: c.With(fmt.Sprintf(format, args...)), Short: short}
}

// State returns what a frontend of a kind does with new connections, "" without
// a lack.
func (l *Lack) State(kind AddressKind) string {
	switch {
	case l.Of == "":
		return ""
	case l.Of.Rejects():
		return "rejects: " + l.Short
	case kind == ClusterIP:
		return "drops: no usable endpoint on this node, " + l.Short
	}
	return "drops clients outside the cluster: no usable endpoint on this node, " + l.Short
}

// LackOf returns why traffic with a policy reaches no endpoint for a reason of
// Reach. uses are the EndpointUses of the input.
func LackOf(f nft.Family, in *PlanInput, uses []EndpointUse, policy cluster.Policy, of Code) Lack {
	l := unusedCounts{family: f, in: in, name: in.Service.Name.WithPort(in.Port.Name), count: make(map[Code]int)}
	for i := range uses {
		u := &uses[i]
		why := u.For(policy)
		switch {
		case why == UnusedDuplicate:
		case of == NoLocalEndpoints && !u.OnThisNode:
			l.elsewhere++
		default:
			l.count[why]++
			l.endpoints++
		}
	}
	found := l.byReason(of)
	found.Of = of
	return found
}

// InFamily returns the lack of a Service that has endpoints of the other family
// only.
func (l Lack) InFamily(service cluster.ServiceName, f, other nft.Family) Lack {
	short := fmt.Sprintf("all endpoints are %s", other.Name())
	found := OtherFamily.lack(short, "%s has no %s endpoint: %s", service, f.Name(), short)
	found.Of = l.Of
	return found
}

// WithoutSlices returns the lack of a Service that has no EndpointSlice.
func (l Lack) WithoutSlices(service cluster.ServiceName) Lack {
	if l.Code != NoPods {
		return l
	}
	short := "no EndpointSlice has the label kubernetes.io/service-name=" + service.Name
	found := NoSlices.lack(short, "%s has no endpoints: %s in namespace %s", service, short, service.Namespace)
	found.Of = l.Of
	return found
}

// unusedCounts counts the endpoints of a service port that a frontend does not
// use, by reason.
type unusedCounts struct {
	family    nft.Family
	in        *PlanInput
	name      cluster.PortName
	endpoints int
	elsewhere int // on other nodes
	count     map[Code]int
}

func (l *unusedCounts) byReason(of Code) Lack {
	switch of {
	case NoWeight:
		return l.noWeight()
	case NoEndpoints:
		if found, ok := l.alike(); ok {
			return found
		}
	case NoLocalEndpoints:
		if l.endpoints == 0 {
			return of.lack(fmt.Sprintf("all %d are on other nodes", l.elsewhere), "")
		}
	}
	return of.lack(l.list(), "")
}

// alike returns the reason if it is the same for all endpoints.
func (l *unusedCounts) alike() (Lack, bool) {
	all := func(u Code) bool { return l.count[u] == l.endpoints }
	name, n, family := l.in.Service.Name, l.endpoints, l.family.Name()
	short := fmt.Sprintf("no pod with an %s address matches the selector %s", family, l.in.Service.Selector)
	switch {
	case n == 0 && l.in.Service.Selector != "":
		return NoPods.lack(short, "%s of %s", short, name), true
	case n == 0:
		return NoSlices.lack(fmt.Sprintf("no selector, and no %s endpoint in an EndpointSlice", family),
			"%s has no selector, and no EndpointSlice has an %s endpoint for it", name, family), true
	case all(UnusedNoPort):
		return l.noPort(), true
	case all(UnusedTerminating):
		return AllTerminating.lack("all endpoints are terminating",
			"all %d endpoints of %s are terminating, and none serves", n, l.name), true
	case all(UnusedNotReady):
		return NoneReady.lack("no endpoint is ready", "none of %d endpoints of %s is ready", n, l.name), true
	}
	return Lack{}, false
}

// noPort is the reason if no EndpointSlice has the port. The name of a port in
// a slice is that of the service port.
func (l *unusedCounts) noPort() Lack {
	p := l.in.Port
	missing := fmt.Sprintf("a port named %q (%s)", p.Name, p.Protocol)
	if p.Name == "" {
		missing = fmt.Sprintf("a %s port without a name", p.Protocol)
	}
	short := "no EndpointSlice has " + missing
	if p.TargetName != "" {
		short += fmt.Sprintf(": no pod has a port named %q (targetPort)", p.TargetName)
	}
	has := "no ports"
	if ports := l.slicePorts(); len(ports) > 0 {
		has = "only " + strings.Join(ports, ", ")
	}
	return MissingPort.lack(short, "%s has no endpoint with its port: %s; they have %s", l.name, short, has)
}

// slicePorts lists the ports of the endpoints, at most ten.
func (l *unusedCounts) slicePorts() (texts []string) {
	const limit = 10
	for _, e := range l.in.Endpoints {
		if !l.family.Of(e.Addr) {
			continue
		}
		for _, p := range e.Ports {
			text := strings.TrimSpace(fmt.Sprintf("%s %d/%s", p.Name, p.Port, p.Protocol))
			if len(texts) < limit && !slices.Contains(texts, text) {
				texts = append(texts, text)
			}
		}
	}
	return texts
}

// noWeight is the reason if the endpoints that a client may use have weight 0.
func (l *unusedCounts) noWeight() Lack {
	hinted := l.count[UnusedZoneHints] + l.count[UnusedNodeHints]
	if hinted == 0 {
		return NoWeight.lack(l.list(), "")
	}
	short := fmt.Sprintf("hints keep this node from %d endpoints, and the others have weight 0", hinted)
	return HintedElsewhere.lack(short, "%s: %s", l.name, short)
}

// list counts the endpoints by the reason why they are not used.
func (l *unusedCounts) list() string {
	var texts []string
	for why, n := range l.count {
		texts = append(texts, fmt.Sprintf("%d of %d: %s", n, l.endpoints, why.Text(Facts{})))
	}
	slices.Sort(texts)
	return strings.Join(texts, "; ")
}
