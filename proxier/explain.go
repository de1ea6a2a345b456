package proxier

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/cmd/kube-proxy/operator/explain"
	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
	"github.com/nftproxy/nftproxy/proxier/table"
)

// errNotListed is returned if a question cannot be answered yet.
var errNotListed = errors.New("the proxy has not received all Services and EndpointSlices yet")

// Explain walks a hypothetical packet through the table that the Proxier wants.
func (p *Proxier) Explain(ctx context.Context, q explain.Query) (*explain.Desired, error) {
	f := p.familyOf(nft.FamilyOf(q.Destination.Addr()))
	switch {
	case f == nil:
		return nil, fmt.Errorf("the proxy does not serve %s", apiFamily(nft.FamilyOf(q.Destination.Addr())))
	case !p.tracker.ready():
		return nil, errNotListed
	}
	e := explanation{query: q, family: f, routes: p.routes}
	e.read = func(read func()) error {
		_, err := query(ctx, f, func() (struct{}, error) {
			read()
			return struct{}{}, nil
		})
		return err
	}
	if err := e.explain(); err != nil {
		return nil, err
	}
	e.desired.Pending = f.pending()
	return &e.desired, nil
}

// explanation computes the answer to a question of package explain. The walk
// takes place outside of the loop, because it can take long for a Service with
// thousands of endpoints.
type explanation struct {
	query    explain.Query
	family   *family
	routes   *explain.NodeRoutes
	read     func(func()) error // calls a function in the loop of the family
	expected *table.Expected

	desired explain.Desired
	owner   owner
}

// owner is the service port that owns the destination.
type owner struct {
	frontend ruleset.ServedFrontend
	port     table.PortView
}

func (e *explanation) explain() (err error) {
	if e.expected, err = e.family.table.Expected(e.read); err != nil {
		return err
	}
	if e.desired.Result, err = explain.Explain(e.expected, e.routes, e.query); err != nil {
		return err
	}
	if err := e.findOwner(); err != nil || e.desired.ServicePort == "" {
		return err
	}
	switch f := &e.owner.frontend; {
	case e.toLocalhost() && e.family.localhost == nil:
		e.note("%s has %s, but nodePortAddresses or a feature gate exclude NodePorts on localhost", f.Frontend)
		e.desired.ServicePort, e.desired.Frontend = "", ""
	case e.owner.port.Refusal != "":
		e.note("%s keeps what is left of its last rules, because the new ones cannot be written: %s", e.owner.port.Refusal)
	case e.toLocalhost() && f.Proto == cluster.TCP:
		e.forward(f.Policy == cluster.PolicyLocal)
	default:
		e.unused(f.Policy == cluster.PolicyLocal && !e.desired.Result.UsesAllEndpoints())
	}
	return nil
}

// note adds a note about the service port that owns the destination.
func (e *explanation) note(format string, about any) {
	e.desired.Notes = append(e.desired.Notes, fmt.Sprintf(format, e.desired.ServicePort, about))
}

func (e *explanation) toLocalhost() bool { return e.query.Destination.Addr().IsLoopback() }

// findOwner finds the service port that owns the destination, if there is one.
func (e *explanation) findOwner() error {
	frontends, err := e.frontends()
	if err != nil {
		return err
	}
	var name string
	var found owner
	err = e.read(func() {
		for _, f := range frontends {
			service, port, ok := e.family.table.Owner(f)
			if !ok {
				continue
			}
			i := slices.IndexFunc(port.Frontends, func(v table.FrontendView) bool { return v.Frontend == f })
			name, found = service.WithPort(port.Name), owner{port.Frontends[i].ServedFrontend, port}
			return
		}
	})
	if err == nil && name != "" {
		e.owner, e.desired.ServicePort, e.desired.Frontend = found, name, string(kindOf(&found.frontend))
	}
	return err
}

// frontends returns the frontends that the destination can be.
func (e *explanation) frontends() ([]ruleset.Frontend, error) {
	to, proto := e.query.Destination, cluster.Protocol(e.query.Protocol)
	vip := ruleset.Frontend{Addr: to.Addr(), Port: to.Port(), Proto: proto}
	nodePort := ruleset.Frontend{Port: to.Port(), Proto: proto}
	addrs := e.expected.NodePortAddrs()
	switch {
	case slices.Contains(addrs, to.Addr()), e.toLocalhost():
		return []ruleset.Frontend{vip, nodePort}, nil
	case !slices.ContainsFunc(addrs, netip.Addr.IsUnspecified):
		return []ruleset.Frontend{vip}, nil
	}
	typ, err := e.routes.RouteType(to.Addr())
	if typ == unix.RTN_LOCAL {
		return []ruleset.Frontend{vip, nodePort}, err
	}
	return []ruleset.Frontend{vip}, err
}

// forward describes how the Proxier serves a TCP NodePort on localhost. local
// reports whether policy Local applies.
func (e *explanation) forward(local bool) {
	state, plan := e.family.localhost.server.State(e.query.Destination.Port()), e.owner.port.Plan
	f := &explain.Forwarder{Endpoints: state.Targets}
	refuse := func(r ruleset.Reason) {
		f.Closed = explain.Reason{
			Code: explain.ReasonCode(r), Text: r.Text(ruleset.Refused{ServicePort: e.desired.ServicePort}),
		}
	}
	switch {
	case len(state.Targets) == 0 && local && plan != nil && len(plan.Cluster) > 0:
		refuse(ruleset.NoLocalEndpoints)
	case len(state.Targets) == 0:
		refuse(ruleset.NoEndpoints)
	case state.Failure != "":
		f.Closed = explain.Reason{Code: explain.Localhost, Text: "the proxy cannot serve the NodePort: " + state.Failure}
	case state.Pinned.IsValid():
		f.Endpoints, f.Affinity = []netip.AddrPort{state.Pinned}, "known"
	case state.Affinity != 0:
		f.Affinity = "new"
	}
	e.desired.Forwarder = f
	e.listUnused(local)
}

// unused lists the endpoints that the packet cannot reach. If the packet is
// refused for another reason than a lack of endpoints, the list would mislead.
func (e *explanation) unused(local bool) {
	o := &e.desired.Result.Outcomes[0]
	switch {
	case o.Action == explain.ToEndpoint, o.Reason.Code == explain.NoEndpoints, o.Reason.Code == explain.NoLocalEndpoints:
		e.listUnused(local)
	}
}

func (e *explanation) listUnused(local bool) {
	for _, u := range e.owner.port.Endpoints {
		why := u.Cluster
		if local {
			why = u.Local
		}
		if why != "" && why != ruleset.UnusedDuplicate {
			e.desired.Unused = append(e.desired.Unused, explain.Unused{
				Address: u.Addr, Port: u.Port, Node: u.Node, Reason: string(why), Text: why.Text(),
			})
		}
	}
}

// pending returns why the kernel may not have the desired table, "" if it
// should have it.
func (f *family) pending() string {
	switch last := f.lastSync.Load(); {
	case last != nil && last.Err != nil:
		return "the last sync failed: " + last.Err.Error()
	case !f.health.waitingSince().IsZero():
		return "a change is waiting for the next sync"
	}
	return ""
}
