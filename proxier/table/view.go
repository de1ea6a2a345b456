package table

import (
	"iter"
	"net/netip"

	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
)

// ServiceView is the desired state of a Service, for queries. It is computed
// when it is needed: the Table stores no plans but those that are committed. It
// stays valid after the Table changes, and must not be modified.
type ServiceView struct {
	*cluster.Service
	// Pending reports whether the kernel may not have this state yet.
	Pending bool
	// NodePortAddrs are the addresses on which NodePorts listen, as of the last
	// commit. The unspecified address stands for all.
	NodePortAddrs []netip.Addr
	Ports         []PortView // in the order of Service.Ports
	// Reduced is how the Service exceeds a budget, "" if it does not.
	Reduced string
}

// PortView is the desired state of a service port.
type PortView struct {
	cluster.ServicePort
	// Plan is what the kernel should have. It is nil if the service port owns
	// no frontend, or is left out.
	Plan *ruleset.Plan
	// Refusal is the reason why Plan is not the wanted plan, but what is left
	// of the last one, "" if it is the wanted plan.
	Refusal   string
	Frontends []FrontendView
	Endpoints []ruleset.EndpointUse
}

// FrontendView is a frontend that a service port claims.
type FrontendView struct {
	ruleset.ServedFrontend
	// Owner is the name of the service port that owns the frontend, or a
	// description of the port of this node that takes it.
	Owner string
	// Owned reports whether this is the service port of the frontend.
	Owned bool
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

// Service returns the desired state of a Service. ok is false if the table does
// not have it.
func (t *Table) Service(name cluster.ServiceName) (view ServiceView, ok bool) {
	s := t.desired.services[name]
	if s == nil || s.spec == nil {
		return ServiceView{}, false
	}
	_, dirty := t.desired.dirty[s]
	view = ServiceView{
		Service: s.spec, Pending: dirty || t.inDoubt != "", NodePortAddrs: t.committed.nodePortAddrs,
	}
	if s.reduced != nil {
		view.Reduced = t.desired.reduction(s)
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
	in := t.planInput(p)
	view := PortView{
		ServicePort: p.port, Endpoints: ruleset.EndpointUses(t.Family(), in),
	}
	plan, err := t.desiredPlan(p)
	switch r := t.refusals[p]; {
	case err != nil:
		view.Refusal = err.Error()
	case r.instead != theWanted:
		view.Refusal = r.why
	}
	view.Plan = plan
	for _, f := range p.wants {
		c := &t.desired.claims
		view.Frontends = append(view.Frontends, FrontendView{f, c.holder(f.Frontend).text, c.owner(f.Frontend) == p})
	}
	return view
}
