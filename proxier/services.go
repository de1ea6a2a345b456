package proxier

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/nftproxy/nftproxy/cmd/kube-proxy/operator/socket"
	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
	"github.com/nftproxy/nftproxy/proxier/table"
)

// Limits of what one query of the loop reads, because changes wait for it: at
// most servicesPerQuery Services, and no further one after endpointsPerQuery
// endpoints of service ports.
const (
	servicesPerQuery  = 32
	endpointsPerQuery = 1024
)

// Services calls yield for each Service of a query, in the order of their
// names. The endpoints are listed if the query names a Service. If a family
// does not answer, the answers of the other one come before the error.
func (p *Proxier) Services(ctx context.Context, q socket.ServiceQuery, yield func(*socket.Service) error) error {
	found, failed := queryEach(ctx, p.families, func(f *family) []cluster.ServiceName { return f.serviceNames(q) })
	var names []cluster.ServiceName
	var families []*family
	for _, f := range found {
		names, families = append(names, f.result...), append(families, f.family)
	}
	slices.SortFunc(names, cluster.ServiceName.Compare)
	names = slices.Compact(names)
	if len(names) == 0 && failed == nil && q.Name != "" {
		return fmt.Errorf("%s/%s: %w", q.Namespace, q.Name, socket.ErrNoService)
	}
	for len(names) > 0 && len(families) > 0 {
		pages, err := queryEach(ctx, families, func(f *family) []familyView { return f.viewServices(names) })
		failed = errors.Join(failed, err)
		n := len(names)
		families = nil
		for _, page := range pages {
			n, families = min(n, len(page.result)), append(families, page.family)
		}
		if len(families) == 0 {
			break
		}
		for i := range n {
			if err := yieldService(pages, i, q.Name != "", yield); err != nil {
				return err
			}
		}
		names = names[n:]
	}
	return failed
}

// yieldService calls yield for Service i of the pages of all families, unless
// it was deleted meanwhile.
func yieldService(pages []answer[[]familyView], i int, withEndpoints bool, yield func(*socket.Service) error) error {
	var views []familyView
	for _, page := range pages {
		if page.result[i].Service != nil {
			views = append(views, page.result[i])
		}
	}
	if len(views) == 0 {
		return nil
	}
	return yield(serviceOf(views, withEndpoints))
}

// serviceNames returns the names of the Services of a query.
func (f *family) serviceNames(q socket.ServiceQuery) (names []cluster.ServiceName) {
	for name := range f.table.ServiceNames() {
		if (q.Namespace == "" || q.Namespace == name.Namespace) && (q.Name == "" || q.Name == name.Name) {
			names = append(names, name)
		}
	}
	return names
}

// familyView is the state of a Service in the table of one family. Its Service
// is nil if the table does not have it.
type familyView struct {
	family string
	table.ServiceView
}

// viewServices returns the states of the first Services, as many as one query
// may read and at least one.
func (f *family) viewServices(names []cluster.ServiceName) (views []familyView) {
	endpoints := 0
	for _, name := range names[:min(len(names), servicesPerQuery)] {
		view, _ := f.table.Service(name)
		for i := range view.Ports {
			endpoints += len(view.Ports[i].Endpoints)
		}
		if views = append(views, familyView{f.name(), view}); endpoints >= endpointsPerQuery {
			break
		}
	}
	return views
}

// serviceOf combines the states of a Service in its families. All families have
// the same ports.
func serviceOf(views []familyView, withEndpoints bool) *socket.Service {
	spec := views[0].Service
	s := &socket.Service{
		Namespace: spec.Name.Namespace, Name: spec.Name.Name,
		InternalPolicy: policyName(spec.InternalPolicy), ExternalPolicy: policyName(spec.ExternalPolicy),
		AffinitySeconds: int(spec.AffinityTimeout.Seconds()), HealthCheckNodePort: spec.HealthCheckNodePort,
		Restricted: spec.SourceRanges != nil, SourceRanges: spec.SourceRanges,
		Ports: make([]socket.ServicePort, len(views[0].Ports)),
	}
	for i, port := range views[0].Ports {
		s.Ports[i] = socket.ServicePort{Name: port.Name, Protocol: port.Protocol.String(), Port: port.Port}
		for _, v := range views {
			addPort(&s.Ports[i], v.family, &v.Ports[i], withEndpoints)
			if withEndpoints {
				listenOn(&s.Ports[i], v.family, v.NodePortAddrs)
			}
		}
	}
	for _, v := range views {
		s.Pending = s.Pending || v.Pending
		if v.Reduced != "" {
			if s.Reductions == nil {
				s.Reductions = make(map[string]string)
			}
			s.Reductions[v.family] = v.Reduced
		}
	}
	return s
}

func policyName(p cluster.Policy) string {
	if p == cluster.PolicyLocal {
		return "Local"
	}
	return "Cluster"
}

// addPort adds the state of a service port in one family.
func addPort(to *socket.ServicePort, family string, v *table.PortView, withEndpoints bool) {
	for i := range v.Frontends {
		to.Frontends = append(to.Frontends, frontendOf(family, v, &v.Frontends[i]))
	}
	if withEndpoints {
		for i := range v.Endpoints {
			to.Endpoints = append(to.Endpoints, endpointOf(&v.Endpoints[i]))
		}
	}
}

// listenOn sets the addresses of the NodePorts of a family.
func listenOn(to *socket.ServicePort, family string, addrs []netip.Addr) {
	for i := range to.Frontends {
		if f := &to.Frontends[i]; f.Kind == socket.NodePort && f.Family == family {
			f.Addresses = addrs
		}
	}
}

func frontendOf(family string, port *table.PortView, f *table.FrontendView) socket.Frontend {
	out := socket.Frontend{
		Family: family, Kind: kindOf(&f.ServedFrontend), Address: f.Addr, Port: f.Port, Policy: policyName(f.Policy),
		State: socket.Served,
	}
	out.UsedEndpoints, out.AllEndpoints = countEndpoints(port.Endpoints, f.Policy)
	switch {
	case !f.Owned:
		out.State, out.Owner = socket.Conflicting, f.Owner
	case port.Refusal != "":
		out.State, out.Error, out.UsedEndpoints = socket.Refused, port.Refusal, port.Plan.EndpointsOf(f.Frontend)
	case port.Plan == nil || len(port.Plan.Cluster) == 0:
		out.State = socket.NoEndpoints
	case f.Policy == cluster.PolicyLocal && len(port.Plan.Local) == 0:
		out.State = socket.NoLocalEndpoints
	}
	return out
}

// countEndpoints returns the number of endpoints that traffic with a policy
// uses, and that of all endpoints.
func countEndpoints(endpoints []ruleset.EndpointUse, policy cluster.Policy) (used, all int) {
	for i := range endpoints {
		reason := endpoints[i].Cluster
		if policy == cluster.PolicyLocal {
			reason = endpoints[i].Local
		}
		if reason == "" {
			used++
		}
		if reason != ruleset.UnusedDuplicate {
			all++
		}
	}
	return used, all
}

func kindOf(f *ruleset.ServedFrontend) socket.FrontendKind {
	switch {
	case f.IsNodePort():
		return socket.NodePort
	case f.Kind == ruleset.LoadBalancerIP:
		return socket.LoadBalancerIP
	case f.Kind == ruleset.ExternalIP:
		return socket.ExternalIP
	}
	return socket.ClusterIP
}

func endpointOf(u *ruleset.EndpointUse) socket.Endpoint {
	e := socket.Endpoint{
		Address: u.Addr, Port: u.Port, Node: u.Node, OnThisNode: u.OnThisNode, Slice: u.Source,
		Ready: u.Ready, Serving: u.Serving, Terminating: u.Terminating,
		Cluster: useOf(u.Cluster), Local: useOf(u.Local),
	}
	if u.Hints != nil {
		e.Zones, e.Nodes = u.Hints.Zones, u.Hints.Nodes
	}
	return e
}

func useOf(reason ruleset.Unused) socket.Use {
	return socket.Use{Used: reason == "", Reason: string(reason), Text: reason.Text()}
}
