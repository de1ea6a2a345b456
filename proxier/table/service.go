package table

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
	"github.com/nftproxy/nftproxy/proxier/table/keep"
)

// serviceState is the desired state of one Service.
type serviceState struct {
	name      cluster.ServiceName
	namespace *namespace
	created   time.Time // of spec
	// spec is nil if the source passed endpoints only.
	spec *cluster.Service
	// endpoints are sorted by address and source. The slice may belong to the
	// source, so it is replaced and never modified.
	endpoints []*cluster.Endpoint
	weighted  bool  // an endpoint has another weight than the default
	edits     edits // of endpoints, by source
	// sources are all endpoints, by source, if there are more than a Service
	// can have. leftOut is the number of those that are not among endpoints.
	sources edits
	leftOut int
	// ports are the ports of spec, in its order, followed by removed ones until
	// the next commit.
	ports []*portState
	// check claims the health-check NodePort. It is nil unless there is one.
	check *portState
	// rows is the number of rows within the Service's own budget. reduced is
	// nil if its budgets cover the whole Service.
	rows    int
	reduced *reduced
	// invalidEndpoints is the last note about endpoints that are ignored, "" if
	// there is none.
	invalidEndpoints string
}

// portState is the desired state of one service port, or the claim of a
// health-check NodePort.
type portState struct {
	service *serviceState
	port    cluster.ServicePort
	created time.Time
	// removed reports whether the Service no longer has the port.
	removed bool
	check   bool // see serviceState
	// wants are the frontends that the service port claims.
	wants []ruleset.ServedFrontend
	// index is the position among the ports of the Service, negative for one
	// that it does not have.
	index int32
	// tag identifies the service port while it exists: in transactions
	// (keep.Owner), in plans (ruleset.PlanInput.Number) and in answers.
	tag uint32
	// moving are the keys in desired.holders.
	moving []ruleset.Frontend
	kept   keep.Kept
}

var _ keep.Owner = (*portState)(nil)

// Kept, Tag and Account implement keep.Owner.
func (p *portState) Kept() *keep.Kept       { return &p.kept }
func (p *portState) Tag() uint32            { return p.tag }
func (p *portState) Account() *keep.Account { return &p.service.namespace.Account }

// String returns namespace/name:port, or describes a health check.
func (p *portState) String() string {
	if p.check {
		return "the health check of " + p.service.name.String()
	}
	return p.name().String()
}

func (p *portState) name() cluster.PortName { return p.service.name.WithPort(p.port.Name) }

// plan returns the plan that the kernel has, nil if it has nothing.
func (p *portState) plan() *ruleset.Plan { return planOf(p.kept.Have()) }

// comparePorts orders service ports by Service, name and protocol.
func comparePorts(p, q *portState) int {
	return cmp.Or(p.service.name.Compare(q.service.name),
		strings.Compare(p.port.Name, q.port.Name),
		cmp.Compare(p.port.Protocol, q.port.Protocol))
}

// isPending reports whether a service port of s is not written yet.
func (s *serviceState) isPending() bool {
	return slices.ContainsFunc(s.ports, func(p *portState) bool { return p.kept.Pending() })
}

func compareServices(a, b *serviceState) int { return a.name.Compare(b.name) }

// keyOf returns what identifies a service port within its Service.
func keyOf(p cluster.ServicePort) cluster.ServicePort {
	return cluster.ServicePort{Name: p.Name, Protocol: p.Protocol}
}

// readyEndpoints returns the number of endpoints for the health check of a
// Service. If a service port is not written as it is wanted, and the rules lead
// clients outside the cluster to no endpoint on this node, it is 0.
func (s *serviceState) readyEndpoints(node *cluster.Node) int {
	refused, served := false, false
	for _, p := range s.ports {
		_, failed := p.kept.Failed()
		refused = refused || failed
		plan := p.plan()
		served = served || plan.Reach(cluster.PolicyLocal).Endpoints > 0 &&
			slices.ContainsFunc(plan.Frontends, func(f ruleset.ServedFrontend) bool { return !f.IsClusterIP() })
	}
	if refused && !served {
		return 0
	}
	return s.readyOn(node)
}

// readyOn returns the number of ready endpoints on a node. Endpoints in a
// service CIDR, or with weight 0, do not count, because the rules do not use
// them. As in kube-proxy, endpoints of an EndpointSlice without ports do not
// count either.
func (s *serviceState) readyOn(node *cluster.Node) int {
	ready := make(map[netip.Addr]struct{})
	for _, e := range s.endpoints {
		if e.Ready && e.Node == node.Name && len(e.Ports) > 0 && !node.IsServiceAddr(e.Addr) &&
			!ruleset.IsWeightless(s.spec, e.Weight) {
			ready[e.Addr] = struct{}{}
		}
	}
	return len(ready)
}

// reduced is the part of a Service that its budget covers, if that is not all.
type reduced struct {
	ruleset.Share
	// budget is less than the budget of the Service if its namespace exceeds
	// its own.
	budget   int
	reported bool // in an event
	// endpoints contain the endpoints of each service port.
	endpoints []*cluster.Endpoint
}

// edits are the endpoints that sources passed for a Service since they were
// last merged. They are merged once per sync: a Service can have tens of
// thousands of sources.
type edits map[string][]*cluster.Endpoint
