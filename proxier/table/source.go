package table

import (
	"errors"
	"fmt"
	"iter"
	"maps"
	"net/netip"
	"slices"

	"k8s.io/klog/v2"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
	"github.com/nftproxy/nftproxy/proxier/table/keep"
)

// source is what a Keeper sees of a Table: its owners are service ports, their
// contents plans, the chains on demand balancers, and the sets on demand those
// of clients with session affinity and of source ranges.
type source struct{ t *Table }

var _ keep.Source = source{}

// Owners implements keep.Source.
func (s source) Owners(sorted bool) iter.Seq[keep.Owner] {
	services := maps.Values(s.t.desired.services)
	if sorted {
		services = slices.Values(slices.SortedFunc(services, compareServices))
	}
	return func(yield func(keep.Owner) bool) {
		for svc := range services {
			for _, p := range svc.ports {
				if !yield(p) {
					return
				}
			}
		}
	}
}

// notServed is the reason why a wanted plan cannot be made.
type notServed struct{ error }

// Content implements keep.Source.
func (s source) Content(o keep.Owner, have keep.Content, remainder bool) (keep.Content, error) {
	return s.t.content(o.(*portState), have, remainder, &s.t.ids)
}

// content returns the content that a service port should have, with ids of
// session affinity by an allocator, or without if it is nil (see
// keep.Source.Content).
func (t *Table) content(p *portState, have keep.Content, remainder bool, ids *affinityIDs) (keep.Content, error) {
	before := planOf(have)
	var wanted *ruleset.Plan
	var err error
	if !p.removed && p.service.spec != nil {
		wanted, err = t.rules.MakePlan(t.planInput(p))
	}
	plan := wanted
	if remainder || err != nil {
		plan = ruleset.Remainder(before, wanted)
	}
	if ids != nil {
		ids.assign(before, plan)
	}
	if err != nil {
		err = notServed{err}
	}
	if plan == nil {
		return nil, err
	}
	return content{plan, t.rules}, err
}

// preview returns the plan that the next sync gives a service port, with ids by
// a copy of the allocator, or without if it is nil. The error is the reason why
// the wanted plan cannot be written.
func (t *Table) preview(p *portState, ids *affinityIDs) (*ruleset.Plan, error) {
	next, err := p.kept.Next(func(have keep.Content, remainder bool) (keep.Content, error) {
		return t.content(p, have, remainder, ids)
	})
	return planOf(next), err
}

// planInput returns the input for the plan of a service port, whose Service has
// a spec.
func (t *Table) planInput(p *portState) *ruleset.PlanInput {
	t.desired.mergeEndpoints()
	in := &ruleset.PlanInput{
		Node:      t.desired.node,
		Service:   p.service.spec,
		Port:      p.port,
		Endpoints: p.service.endpoints,
		Frontends: t.desired.owned(p),
		Number:    p.tag,
		Ejections: t.desired.ejections[p],
		Before:    p.plan(),
	}
	if r := p.service.reduced; r != nil {
		in.Endpoints, in.Limits = r.endpoints, r.Limits(int(p.index))
	}
	return in
}

// refused records that a service port cannot be written as it is wanted.
func (s source) refused(p *portState, why error) {
	if p.service.spec == nil {
		return
	}
	reason := cluster.ReasonRefused
	if _, ok := errors.AsType[notServed](why); ok {
		reason = cluster.ReasonNotServed
	}
	s.t.stats.Refusals++
	const format = "Service port %s cannot be updated; it keeps its last rules, or rejects connections: %v"
	s.t.record(cluster.NewEvent(p.service.spec, reason, fmt.Sprintf(format, p, why)))
	s.t.observe(Refusal{p.service.name, p.port, why})
}

// Cost implements keep.Source.
func (s source) Cost(o keep.Owner, have keep.Content) (next int) {
	p := o.(*portState)
	if svc := p.service.spec; svc != nil && !p.removed {
		plan := ruleset.Plan{
			Service: svc, Frontends: p.wants, Sources: svc.SourceRanges, Slots: s.t.config.Rules.Slots(svc),
		}
		next = plan.Cost(len(p.service.endpoints), p.service.weighted)
	}
	before := planOf(have)
	if before == nil {
		return next
	}
	return max(next, before.Cost(len(before.Cluster)+len(before.Local), before.HasWeights()))
}

// CountRows implements keep.Source. It counts up to twice the rows, as if each
// endpoint were on this node.
func (s source) CountRows() int { return s.t.desired.countRows() }

// Program implements keep.Source.
func (s source) Program(used func(*nft.Set) bool) *nft.Table {
	t := s.t
	t.program = t.rules.MakeProgram(t.desired.node, t.rules.SourceSets(used)...)
	return t.program.Table
}

// Rows implements keep.Source.
func (s source) Rows() []nft.Row {
	t := s.t
	rows := slices.Clip(t.program.Rows)
	if below, ok := t.ids.reserve(); ok {
		rows = append(rows, t.rules.ReservedIDs(below))
	}
	return rows
}

// Own implements keep.Source.
func (s source) Own() string { return ruleset.OwnSet }

// Shared implements keep.Source.
func (s source) Shared(set *nft.Set) bool { return s.t.rules.IsShared(set) }

// OnDemand implements keep.Source.
func (s source) OnDemand() []*nft.Set { return s.t.onDemand }

// ChainOf implements keep.Source.
func (s source) ChainOf(r nft.Row) (id uint32, ok bool) {
	class := s.t.rules.ClassOf(r)
	return uint32(class), class.IsBalancer()
}

// Chain implements keep.Source.
func (s source) Chain(id uint32) (*nft.Chain, nft.Row) { return s.t.rules.Balancer(ruleset.Class(id)) }

// HasStableChains implements keep.Source. Another process can give the number
// of a service port to another one.
func (s source) HasStableChains(c keep.Content) bool { return planOf(c).Number == 0 }

// IsIndexed implements keep.Source.
func (s source) IsIndexed(set *nft.Set) bool { return s.t.rules.IsIndexed(set) }

// IsVital implements keep.Source.
func (s source) IsVital(set *nft.Set) bool { return s.t.rules.IsVital(set) }

// After implements keep.Source.
func (s source) After(r nft.Row) []nft.Row { return s.t.rules.After(r) }

// Report implements keep.Source.
func (s source) Report(e keep.Event) {
	switch e := e.(type) {
	case *keep.Commit:
		s.committed(e)
	case keep.Refusal:
		s.refused(e.Owner.(*portState), e.Why)
	default:
		s.t.observe(e)
	}
}

// observe passes an event to the observer.
func (t *Table) observe(e Event) {
	if t.config.Observer != nil {
		t.config.Observer(t.Family(), e)
	}
}

// committed records a transaction.
func (s source) committed(c *keep.Commit) {
	t, d := s.t, &s.t.desired
	before := t.nodePortAddrs
	if c.Program {
		t.nodePortAddrs, t.loopbackAddrs = t.program.NodePortAddrs, t.program.LoopbackAddrs
	}
	if c.Whole {
		t.stats.ServicePorts, t.stats.Endpoints, t.stats.NoLocalEndpoints = 0, 0, NoLocalEndpoints{}
	}
	for _, change := range c.Changes {
		if !c.Whole {
			t.stats.count(planOf(change.Before), -1)
		}
		t.stats.count(planOf(change.Next), 1)
	}
	for _, change := range c.Changes {
		d.hold(change.Owner.(*portState))
	}
	done := d.written(c)
	s.notify(c, done, before)
	for _, change := range c.Changes {
		t.ids.release(planOf(change.Before), planOf(change.Next))
	}
	if t.ids.adopted {
		waiting := make(map[string]bool)
		for o := range t.keeper.Failing() {
			if p := o.(*portState); p.service.spec != nil {
				waiting[(&ruleset.Plan{Service: p.service.spec, Port: p.port}).AffinityName()] = true
			}
		}
		t.ids.forgetEarlier(waiting)
	}
	for _, svc := range done {
		delete(d.dirty, svc)
		d.forget(svc, t.keeper.Forget)
	}
	if len(d.dirty) == 0 {
		// A new map: iterating over an emptied one costs as much as before.
		d.dirty = make(map[*serviceState]struct{})
	}
}

// notify notifies the observer of a committed transaction, after which these
// Services have no change that is not written.
func (s source) notify(commit *keep.Commit, done []*serviceState, nodePortAddrsBefore []netip.Addr) {
	t := s.t
	if t.config.Observer == nil {
		return
	}
	c := &Commit{
		Family: t.Family(), Whole: commit.Whole, NodePortAddrs: t.nodePortAddrs,
		NodePortAddrsChanged: !slices.Equal(nodePortAddrsBefore, t.nodePortAddrs), LoopbackAddrs: t.loopbackAddrs,
		Changes:  make([]PortChange, 0, len(commit.Changes)),
		Services: make([]ServiceChange, 0, len(done)),
	}
	for _, change := range commit.Changes {
		c.Changes = append(c.Changes, PortChange{planOf(change.Before), planOf(change.Next)})
	}
	for _, svc := range done {
		change := ServiceChange{Name: svc.name, Service: svc.spec}
		if _, taken := t.desired.claims.checkTaken(svc); svc.check != nil && !taken {
			change.HealthCheckNodePort = svc.spec.HealthCheckNodePort
			change.ReadyEndpoints = svc.readyEndpoints(t.desired.node)
		}
		c.Services = append(c.Services, change)
	}
	t.observe(c)
}

// written returns the Services that a commit changed, or that changed and have
// no service ports, and that have no change left that is not written. Its cost
// does not depend on the number of Services that wait.
func (d *desired) written(c *keep.Commit) []*serviceState {
	changed := d.portless
	if d.portless = make(map[*serviceState]struct{}); c.Whole {
		changed = make(map[*serviceState]struct{}, len(d.services))
		for _, svc := range d.services {
			changed[svc] = struct{}{}
		}
	}
	for _, change := range c.Changes {
		changed[change.Owner.(*portState).service] = struct{}{}
	}
	return slices.DeleteFunc(slices.Collect(maps.Keys(changed)), (*serviceState).isPending)
}

// maxEarlierClients is the number of clients with session affinity that are
// taken over from a table that another version wrote. The kernel takes
// quadratic time to list a set.
const maxEarlierClients = 1 << 17

// Inherit implements keep.Source. It returns the clients of the affinity sets
// of a table that another version wrote.
func (s source) Inherit(sets iter.Seq[*nft.Set], has func(string) bool) (clients []nft.Row) {
	t, left := s.t, maxEarlierClients
	for set := range sets {
		if !has(set.Name) {
			continue
		}
		rows, err := t.keeper.Kernel().Rows(t.table(), set)
		if err != nil || len(rows) > left {
			klog.InfoS("Clients with session affinity may get another endpoint", "table", t.name(), "set", set.Name,
				"clients", len(rows), "err", err)
			continue
		}
		left -= len(rows)
		clients = append(clients, slices.DeleteFunc(rows, func(r nft.Row) bool { return r.Expires <= 0 })...)
	}
	return clients
}
