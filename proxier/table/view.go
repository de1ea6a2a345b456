package table

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"net/netip"
	"slices"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
)

// ServiceView is the desired state of a Service, for queries. It is computed
// when it is needed: the Table stores no plans but those that are committed. It
// stays valid after the Table changes.
type ServiceView struct {
	cluster.ServiceName
	// InternalPolicy applies to ClusterIPs, ExternalPolicy to all other
	// frontends.
	InternalPolicy cluster.Policy `json:"internalTrafficPolicy"`
	ExternalPolicy cluster.Policy `json:"externalTrafficPolicy"`
	// AffinitySeconds is the timeout of session affinity, 0 without affinity.
	AffinitySeconds int `json:"affinitySeconds,omitempty"`
	// HealthCheck is how this node checks the endpoints, nil for not at all.
	HealthCheck *cluster.HealthCheck `json:"healthCheck,omitempty"`
	// HealthCheckNodePort is 0 if there is none.
	HealthCheckNodePort uint16 `json:"healthCheckNodePort,omitempty"`
	// HealthCheckOwner is what HealthCheckNodePort belongs to, "" for the
	// Service.
	HealthCheckOwner string `json:"healthCheckOwner,omitempty"`
	// SourceRanges are loadBalancerSourceRanges. They have no meaning unless
	// Restricted is true: then only these clients may use the LoadBalancer IPs
	// of a family, unless it is Unrestricted.
	Restricted   bool           `json:"restricted,omitempty"`
	SourceRanges []netip.Prefix `json:"sourceRanges,omitempty"`
	// Pending reports whether the kernel may not have this state yet.
	Pending bool       `json:"pending,omitempty"`
	Ports   []PortView `json:"ports"`
	// Reductions are how the Service exceeds a budget of rows, by family.
	Reductions map[nft.Family]string `json:"reductions,omitempty"`
}

// PortView is the desired state of a service port.
type PortView struct {
	// Name is the name of the port in the Service, often "".
	Name      string           `json:"name,omitempty"`
	Protocol  cluster.Protocol `json:"protocol"`
	Port      uint16           `json:"port"`
	Frontends []FrontendView   `json:"frontends"`
	// Endpoints are all endpoints of the Service, used or not.
	Endpoints []ruleset.EndpointUse `json:"endpoints,omitempty"`

	// Tag identifies the service port in transactions (see nft.Problem), and in
	// the rows of its targets if it has a number.
	Tag uint32 `json:"-"`
	// Plan is what the kernel should have. It is nil if the service port owns
	// no frontend, or is left out.
	Plan *ruleset.Plan `json:"-"`
	// Lacks are why traffic with a policy uses no endpoint.
	Lacks map[cluster.Policy]ruleset.Lack `json:"-"`
	// Refusal is the reason why Plan is not the wanted plan, but the remainder
	// of the last one, "" if it is the wanted plan.
	Refusal string `json:"-"`
	// Waits reports whether the next sync tries the wanted plan again.
	Waits bool `json:"-"`
}

// FrontendView is a frontend that a service port claims. A NodePort is a
// frontend in each address family of the Service.
type FrontendView struct {
	Family nft.Family          `json:"family"`
	Kind   ruleset.AddressKind `json:"kind"`
	// Address is zero for a NodePort.
	Address netip.Addr `json:"address,omitzero"`
	// Addresses are those on which a NodePort listens, as of the last commit.
	// The unspecified address stands for all addresses of the node.
	Addresses []netip.Addr   `json:"addresses,omitempty"`
	Port      uint16         `json:"port"`
	Policy    cluster.Policy `json:"policy"`
	// State is Served, or the reason why new connections reach no endpoint, or
	// not those that the Service wants: that of ruleset.Reach, or one of
	// ruleset.Conflict and what follows it there.
	State ruleset.Code `json:"state"`
	// UsedEndpoints is the number of endpoints that new connections reach (see
	// ruleset.Reach). AllEndpoints is the number of endpoints of its address
	// family, including those that are not ready, but no duplicates.
	UsedEndpoints int `json:"usedEndpoints"`
	AllEndpoints  int `json:"allEndpoints"`
	// Owner is the name of the service port that owns the frontend if its state
	// is ruleset.Conflict, or describes the port of this node that takes it.
	Owner string `json:"owner,omitempty"`
	// Error is the reason why a service port is Waiting or Refused.
	Error string `json:"error,omitempty"`
	// Lack is why no endpoint is used. It is zero for a frontend that is
	// Served.
	Lack ruleset.Lack `json:"lack,omitzero"`
}

// Served is the state of a frontend whose new connections reach an endpoint.
const Served ruleset.Code = "Served"

// Unrestricted reports whether all clients of a family may use the LoadBalancer
// IPs because all source ranges are of the other family.
func (v *ServiceView) Unrestricted(f nft.Family) bool {
	return len(v.SourceRanges) > 0 && len(f.Prefixes(v.SourceRanges)) == 0
}

// WithoutSlices makes the lack of endpoints more precise for a Service that has
// no EndpointSlice.
func (v *ServiceView) WithoutSlices() {
	for i := range v.Ports {
		for k := range v.Ports[i].Frontends {
			f := &v.Ports[i].Frontends[k]
			f.Lack = f.Lack.WithoutSlices(v.ServiceName)
		}
	}
}

// Add adds the state of the same Service in another family.
func (v *ServiceView) Add(other *ServiceView) {
	v.Pending = v.Pending || other.Pending
	v.HealthCheckOwner = cmp.Or(v.HealthCheckOwner, other.HealthCheckOwner)
	maps.Copy(v.Reductions, other.Reductions)
	for _, port := range other.Ports {
		i := slices.IndexFunc(v.Ports, func(p PortView) bool {
			return p.Name == port.Name && p.Protocol == port.Protocol && p.Port == port.Port
		})
		if i < 0 { // one family has not taken a change yet
			v.Ports = append(v.Ports, port)
			continue
		}
		p := &v.Ports[i]
		p.Frontends, p.Endpoints = append(p.Frontends, port.Frontends...), append(p.Endpoints, port.Endpoints...)
	}
}

// ServiceNames returns the names of all Services, in no particular order.
func (t *Table) ServiceNames() iter.Seq[cluster.ServiceName] {
	return func(yield func(cluster.ServiceName) bool) {
		for name, s := range t.desired.services {
			if s.spec != nil && !yield(name) {
				return
			}
		}
	}
}

// EndpointAddrs returns addresses of ready endpoints for each node, at most
// limit of a node. The name of a node that is unknown is "".
func (t *Table) EndpointAddrs(limit int) map[string][]netip.Addr {
	found := make(map[string][]netip.Addr)
	t.desired.mergeEndpoints()
	for _, s := range t.desired.services {
		for _, e := range s.endpoints {
			addrs := found[e.Node]
			usable := e.Ready && t.Family().Of(e.Addr) && !t.desired.node.IsServiceAddr(e.Addr)
			if len(addrs) < limit && usable && !slices.Contains(addrs, e.Addr) {
				found[e.Node] = append(addrs, e.Addr)
			}
		}
	}
	return found
}

// Service returns the desired state of a Service. ok is false if the table does
// not have it.
func (t *Table) Service(name cluster.ServiceName) (view ServiceView, ok bool) {
	s := t.desired.services[name]
	if s == nil || s.spec == nil {
		return ServiceView{}, false
	}
	_, dirty := t.desired.dirty[s]
	dirty = dirty || s.isPending()
	view = ServiceView{
		ServiceName: name, InternalPolicy: s.spec.InternalPolicy, ExternalPolicy: s.spec.ExternalPolicy,
		AffinitySeconds: int(s.spec.AffinityTimeout.Seconds()), HealthCheck: s.spec.HealthCheck,
		HealthCheckNodePort: s.spec.HealthCheckNodePort,
		Restricted:          s.spec.SourceRanges != nil, SourceRanges: s.spec.SourceRanges,
		Pending: dirty || t.keeper.InDoubt() != "", Ports: make([]PortView, 0, len(s.ports)),
		Reductions: make(map[nft.Family]string),
	}
	if by, taken := t.desired.claims.checkTaken(s); taken {
		view.HealthCheckOwner = by.text
	}
	if s.reduced != nil {
		view.Reductions[t.Family()] = t.desired.reduction(s)
	}
	for _, p := range s.ports {
		if !p.removed {
			view.Ports = append(view.Ports, t.viewPort(p))
		}
	}
	return view, true
}

// Owner returns the name of the Service that owns a frontend, and the state of
// its service port. ok is false if no Service claims the frontend.
func (t *Table) Owner(f ruleset.Frontend) (name cluster.ServiceName, view PortView, ok bool) {
	p := t.desired.claims.owner(f)
	if p == nil {
		return cluster.ServiceName{}, PortView{}, false
	}
	return p.service.name, t.viewPort(p), true
}

func (t *Table) viewPort(p *portState) PortView {
	view := PortView{
		Name: p.port.Name, Protocol: p.port.Protocol, Port: p.port.Port, Tag: p.tag,
		Lacks: make(map[cluster.Policy]ruleset.Lack),
	}
	in := t.planInput(p)
	view.Endpoints = ruleset.EndpointUses(t.Family(), in)
	plan, err := t.preview(p, nil)
	view.Refusal, view.Waits = p.kept.Failed()
	if _, refused := p.kept.Refused(); refused || err != nil {
		view.Waits = false
	}
	if err != nil {
		view.Refusal = err.Error()
	}
	view.Plan = plan
	for _, policy := range []cluster.Policy{cluster.PolicyCluster, cluster.PolicyLocal} {
		local := func(f ruleset.ServedFrontend) bool { return f.Policy == cluster.PolicyLocal }
		if policy == cluster.PolicyLocal && !slices.ContainsFunc(p.wants, local) {
			continue
		}
		if r := plan.Reach(policy); r.Reason != "" {
			view.Lacks[policy] = ruleset.LackOf(t.Family(), in, view.Endpoints, policy, r.Reason)
		}
	}
	reach := make(map[ruleset.Frontend]ruleset.Reach)
	if plan != nil {
		for _, f := range plan.Frontends {
			reach[f.Frontend] = plan.Reach(f.Policy)
		}
	}
	view.Frontends = slices.Grow(view.Frontends, len(p.wants))
	for i := range p.wants {
		f := &p.wants[i]
		r, ok := reach[f.Frontend]
		if !ok {
			r.Reason = ruleset.NoEndpoints
		}
		view.Frontends = append(view.Frontends, t.viewFrontend(p, &view, f, r))
	}
	return view
}

func (t *Table) viewFrontend(
	p *portState, port *PortView, f *ruleset.ServedFrontend, reach ruleset.Reach,
) FrontendView {
	view := FrontendView{
		Family: t.Family(), Kind: f.Kind, Address: f.Addr, Port: f.Port, Policy: f.Policy,
		State: cmp.Or(reach.Reason, Served), UsedEndpoints: reach.Endpoints,
	}
	if f.IsNodePort() {
		view.Addresses = t.nodePortAddrs
	}
	for i := range port.Endpoints {
		if port.Endpoints[i].For(f.Policy) != ruleset.UnusedDuplicate {
			view.AllEndpoints++
		}
	}
	if reach.Reason != "" {
		view.Lack = port.Lacks[f.Policy]
	}
	switch {
	case t.desired.claims.owner(f.Frontend) != p:
		view.State, view.Owner = ruleset.Conflict, t.desired.claims.holder(f.Frontend).text
	case port.Waits:
		view.State, view.Error = ruleset.Waiting, port.Refusal
	case port.Refusal != "":
		view.State, view.Error = ruleset.Refused, port.Refusal
	}
	return view
}

// Reduction describes how a Service that lists a frontend exceeds a budget, as
// a sentence, and returns "" if no such Service does. The Service may serve the
// frontend or leave it out.
func (t *Table) Reduction(f ruleset.Frontend) string {
	d := &t.desired
	for s := range d.budgets.reduced {
		lists := func(port cluster.ServicePort) bool {
			return slices.ContainsFunc(ruleset.FrontendsOf(t.Family(), s.spec, port),
				func(other ruleset.ServedFrontend) bool { return other.Frontend == f })
		}
		if slices.ContainsFunc(s.spec.Ports, lists) {
			return fmt.Sprintf("Service %s %s", s.name, d.reduction(s))
		}
	}
	return ""
}
