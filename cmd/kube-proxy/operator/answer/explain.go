package answer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/cmd/kube-proxy/operator/explain"
	"github.com/nftproxy/nftproxy/cmd/kube-proxy/operator/socket"
	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier"
	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/localhost"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
	"github.com/nftproxy/nftproxy/proxier/table"
)

// Explain asks for the fate of a packet in the table that the proxy wants.
var Explain = socket.Question[explain.Query, explain.Desired]{
	Path: "/v1/explain",
	Format: func(q explain.Query) url.Values {
		return url.Values{
			"destination": {q.Destination.String()}, "protocol": {strconv.Itoa(int(q.Protocol))},
			"source": {q.Source.String()}, "from": {q.From}, "interface": {q.Interface},
		}
	},
	Parse: parsePacket,
}

// parsePacket returns the packet of the parameters of a query.
func parsePacket(v url.Values) (q explain.Query, err error) {
	q.From, q.Interface = v.Get("from"), v.Get("interface")
	if q.Destination, err = netip.ParseAddrPort(v.Get("destination")); err != nil {
		return q, fmt.Errorf("parameter destination: %w", err)
	}
	protocol, err := strconv.ParseUint(v.Get("protocol"), 10, 8)
	if err != nil {
		return q, fmt.Errorf("parameter protocol: %w", err)
	}
	q.Protocol = cluster.Protocol(protocol)
	if q.Source, err = netip.ParseAddr(v.Get("source")); err != nil {
		return q, fmt.Errorf("parameter source: %w", err)
	}
	return q, nil
}

// checkListed returns an error if the proxy does not have all objects yet. It
// then has no Service, while the rules of an earlier process serve them.
func (a *Answers) checkListed() error {
	if a.config.Proxy.Status().Listed {
		return nil
	}
	const text = "the proxy has not received all Services and EndpointSlices yet; the rules of the last process, " +
		"if there are any, stay in use until then"
	if a.config.API != nil {
		if api := a.config.API(); api != nil && api.Trouble() != "" {
			return errors.New(text + ": " + api.Trouble())
		}
	}
	return errors.New(text)
}

// explain answers the question: it walks the packet through the table.
func (a *Answers) explain(ctx context.Context, q explain.Query, yield func(*explain.Desired) error) error {
	f := nft.FamilyOf(q.Destination.Addr())
	if _, family := a.familyStatus(f); family != nil {
		if err := a.checkListed(); err != nil {
			return err
		}
	}
	t, err := ask(ctx, a.config.Proxy, f, func(t *table.Table) (*table.Table, error) { return t, nil })
	if err != nil {
		return err
	}
	e := explanation{Answers: a, query: q, table: t}
	e.read = func(read func()) error {
		return a.config.Proxy.Query(ctx, f, func(*table.Table) error {
			read()
			return nil
		})
	}
	if err := e.explain(); err != nil {
		return err
	}
	if e.desired.Lack.Code == ruleset.NoPods || e.desired.Lack.Code == ruleset.NoSlices {
		e.lackOfFamily(ctx, f)
	}
	if !a.config.Proxy.HasSlice(e.service) {
		e.desired.Lack = e.desired.Lack.WithoutSlices(e.service)
	}
	e.desired.Pending = a.pending(f)
	return yield(&e.desired)
}

// explanation computes the answer to a question of package explain. The walk
// takes place outside of the loop, because it can take long for a Service with
// thousands of endpoints.
type explanation struct {
	*Answers
	query    explain.Query
	table    *table.Table
	read     func(func()) error // calls a function that uses the table
	expected *table.Expected

	result  *explain.Result
	desired explain.Desired
	// service and port own the destination, which is the frontend.
	service  cluster.ServiceName
	port     table.PortView
	frontend table.FrontendView
}

func (e *explanation) explain() (err error) {
	if e.expected, err = e.table.Expected(e.read); err != nil {
		return err
	}
	if e.result, err = explain.Explain(e.expected, e.routes, e.query); err != nil {
		return err
	}
	e.desired.Outcomes = e.result.Outcomes
	if err := e.findOwner(); err != nil || e.desired.ServicePort == "" {
		return err
	}
	forwarded, forwards := e.config.Proxy.Localhost(e.table.Family(), e.query.Destination.Port())
	switch f := &e.frontend; {
	case e.toLocalhost() && !forwards:
		e.note("%s has %s, but nodePortAddresses or a feature gate exclude NodePorts on localhost",
			ruleset.Frontend{Addr: f.Address, Port: f.Port, Proto: e.port.Protocol})
		e.desired.ServicePort, e.desired.Frontend = "", ""
	case e.port.Refusal != "":
		e.note("%s keeps what is left of its last rules, because the new ones cannot be written: %s",
			e.port.Refusal)
	case e.toLocalhost() && e.port.Protocol == cluster.TCP:
		e.forward(&forwarded)
		e.desired.Lack = e.port.Lacks[f.Policy]
	default:
		policy := f.Policy
		if e.result.UsesAllEndpoints() {
			policy = cluster.PolicyCluster
		}
		e.desired.Lack = e.port.Lacks[policy]
		e.unused(policy)
	}
	return nil
}

// lackOfFamily makes the lack of endpoints more precise if the Service has
// endpoints of another family.
func (e *explanation) lackOfFamily(ctx context.Context, f nft.Family) {
	for _, other := range e.families() {
		if other == f {
			continue
		}
		has, err := ask(ctx, e.config.Proxy, other, func(t *table.Table) (bool, error) {
			s, _ := t.Service(e.service)
			return len(s.Ports) > 0 && len(s.Ports[0].Endpoints) > 0, nil
		})
		if has && err == nil {
			e.desired.Lack = e.desired.Lack.InFamily(e.service, f, other)
		}
	}
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
	return e.read(func() {
		for _, f := range frontends {
			if how := e.table.Reduction(f); how != "" {
				e.desired.Notes = append(e.desired.Notes, how)
			}
			service, port, ok := e.table.Owner(f)
			if !ok {
				e.findHealthCheck(f)
				continue
			}
			i := slices.IndexFunc(port.Frontends, func(v table.FrontendView) bool {
				return v.Address == f.Addr && v.Port == f.Port
			})
			e.service, e.port, e.frontend = service, port, port.Frontends[i]
			e.desired.ServicePort, e.desired.Frontend = service.WithPort(port.Name).String(), e.frontend.Kind.String()
			return
		}
	})
}

// findHealthCheck finds out whether a frontend is a health-check NodePort, and
// what the proxy answers there (see healthcheck.ServiceServer).
func (e *explanation) findHealthCheck(f ruleset.Frontend) {
	service, endpoints, ok := e.table.HealthCheck(f.Port)
	if !ok || f.Addr.IsValid() || f.Proto != cluster.TCP {
		return
	}
	answer := fmt.Sprintf("200 (ready endpoints on this node: %d)", endpoints)
	switch {
	case endpoints == 0:
		answer = "503: no endpoint on this node is ready"
	case !e.config.Proxy.Healthy():
		answer = fmt.Sprintf("503: the proxy is not healthy (ready endpoints on this node: %d)", endpoints)
	}
	facts := ruleset.Facts{ServicePort: service.String(), HealthCheck: answer}
	e.desired.HealthCheck = ruleset.HealthCheck.Reason(facts)
}

// frontends returns the frontends that the destination can be.
func (e *explanation) frontends() ([]ruleset.Frontend, error) {
	to, proto := e.query.Destination, e.query.Protocol
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

// forward describes how the proxy serves a TCP NodePort on localhost.
func (e *explanation) forward(state *localhost.State) {
	policy, plan := e.frontend.Policy, e.port.Plan
	f := &explain.Forwarder{Endpoints: distinct(state.Targets)}
	switch {
	case len(state.Targets) == 0:
		reason := cmp.Or(plan.Reach(policy).Reason, ruleset.NoEndpoints) // a change is pending
		f.Closed = reason.Reason(ruleset.Facts{ServicePort: e.desired.ServicePort})
	case state.Failure != "":
		f.Closed = ruleset.Localhost.Reason(ruleset.Facts{Failure: state.Failure})
	case state.Pinned.IsValid():
		f.Endpoints, f.Affinity = []netip.AddrPort{state.Pinned}, "known"
	case state.Affinity != 0:
		f.Affinity = "new"
	}
	e.desired.Forwarder = f
	e.listUnused(policy)
}

// distinct returns the targets without repetitions. The order stays.
func distinct(targets []netip.AddrPort) []netip.AddrPort {
	seen := make(map[netip.AddrPort]bool)
	return slices.DeleteFunc(slices.Clone(targets), func(t netip.AddrPort) bool {
		before := seen[t]
		seen[t] = true
		return before
	})
}

// unused lists the endpoints that the packet cannot reach. If the packet is
// refused for another reason than a lack of endpoints, the list would mislead.
func (e *explanation) unused(policy cluster.Policy) {
	o := &e.result.Outcomes[0]
	lack := []ruleset.Code{ruleset.NoEndpoints, ruleset.NoLocalEndpoints, ruleset.NoWeight}
	if o.Action == explain.ToEndpoint || slices.Contains(lack, o.Reason.Code) {
		e.listUnused(policy)
	}
}

func (e *explanation) listUnused(policy cluster.Policy) {
	for _, u := range e.port.Endpoints {
		if why := u.For(policy); why != "" && why != ruleset.UnusedDuplicate {
			e.desired.Unused = append(e.desired.Unused, explain.Unused{
				EndpointPlace: u.EndpointPlace, Reason: why, Text: u.Why(policy),
			})
		}
	}
}

// familyStatus returns the status of the proxy, and that part of it about a
// family, nil if the proxy does not serve the family.
func (a *Answers) familyStatus(f nft.Family) (status proxier.Status, family *proxier.FamilyStatus) {
	status = a.config.Proxy.Status()
	i := slices.IndexFunc(status.Families, func(s proxier.FamilyStatus) bool { return s.Family == f })
	if i < 0 {
		return status, nil
	}
	return status, &status.Families[i]
}

// pending returns why the kernel may not have the desired table of a family, ""
// if it should have it.
func (a *Answers) pending(f nft.Family) string {
	_, status := a.familyStatus(f)
	switch {
	case status == nil:
	case status.LastSync != nil && status.LastSync.Error != "":
		return "the last sync failed: " + status.LastSync.Error
	case !status.WaitingSince.IsZero():
		return "a change is waiting for the next sync"
	}
	return ""
}
