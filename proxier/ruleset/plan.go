package ruleset

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
)

// Target is the address and port of an endpoint of a service port.
type Target struct {
	Addr netip.Addr
	Port uint16
	// Here reports whether the endpoint is on this node or its node is unknown.
	Here bool
	// Weight is the weight of the endpoint.
	Weight cluster.Weight
	// ID is the number that identifies the endpoint in the sets of clients with
	// session affinity. It is 0 without affinity.
	ID uint32
	// Group is the number of a group of endpoints of the service port (see
	// sticky), 0 if the endpoint is in none.
	Group uint32
}

// AddrPort returns the address and port of the target.
func (t Target) AddrPort() netip.AddrPort { return netip.AddrPortFrom(t.Addr, t.Port) }

// Plan contains everything that the rows and chains of one service port depend
// on. A Plan is not modified after it was committed.
type Plan struct {
	Service *cluster.Service
	Port    cluster.ServicePort
	// Frontends are those that the service port owns.
	Frontends []ServedFrontend
	// Cluster are the endpoints for traffic with policy Cluster, Local those
	// for traffic with policy Local. If Cluster is empty, so is Local. The
	// position of a target is its index in the rows.
	Cluster, Local []Target
	// Ejected are endpoints that are not in these lists. It is nil in most
	// plans.
	Ejected *Ejected
	// ClusterSlots and LocalSlots are the slots from which hashes or weights
	// select a target, as indexes of Cluster and Local. nil means one row for
	// each target. Slots that are empty but not nil mean that all targets have
	// weight 0.
	ClusterSlots, LocalSlots []uint16
	// Once reports whether a connection without an answer keeps its endpoint,
	// although Config.RetryAfter is not 0.
	Once bool
	// Slots is the number of slots, unless there are more targets.
	Slots int
	// Number identifies the service port in the rows of its targets. It is 0 if
	// they are in the rows of each frontend, or in chains of session affinity.
	Number uint32
	// ClientSet is the number of the affinity set of a service port with
	// session affinity.
	ClientSet uint8
	// Serving are all endpoints that established flows of UDP, and attempts to
	// connect by other protocols, may continue to use.
	Serving []netip.AddrPort
	// Sources are the clients that may use the LoadBalancer IPs. If Guarded is
	// false, all clients may.
	Sources []netip.Prefix
	Guarded bool
}

// Name returns the name of the service port.
func (p *Plan) Name() cluster.PortName { return p.Service.Name.WithPort(p.Port.Name) }

func (p *Plan) affinity() time.Duration { return p.Service.AffinityTimeout }

// HasAffinity reports whether the service port has session affinity.
func (p *Plan) HasAffinity() bool { return p != nil && p.affinity() != 0 }

// AffinityName returns the name of the service port in the names of chains.
func (p *Plan) AffinityName() string {
	name := p.Service.Name.Namespace + "." + p.Service.Name.Name + "." + p.Port.Protocol.String()
	if p.Port.Name == "" {
		return name
	}
	return name + "." + p.Port.Name
}

// draw is the way in which a chain draws the index of a row.
type draw uint8

const (
	random         draw = iota // each target has one row at most
	weighted                   // random, from slots
	sourceHash                 // by a hash of the client's address, from slots
	sourcePortHash             // by a hash of the client's address and port, from slots
	randomOnce                 // random, without a retry
	weightedOnce               // weighted, without a retry
	draws
)

// String returns the infix of the names of balancers, such as `hash-`.
func (d draw) String() string {
	return [...]string{"", "weighted-", "hash-", "port-hash-", "once-", "once-weighted-"}[d]
}

// hashSeed is the seed of the hashes of clients. It must never change, so that
// all nodes and versions select the same endpoints.
const hashSeed = 0x5eed

// index yields the index of one of n rows:
//
//	numgen random mod 3
//	jhash ip saddr mod 251 seed 0x5eed
//	jhash ip saddr . th sport mod 251 seed 0x5eed
func (d draw) index(f nft.Family, n int, offset uint32) nft.Expr {
	switch d {
	case sourceHash:
		return nft.Jhash(uint32(n), hashSeed, offset, nft.Saddr(f))
	case sourcePortHash:
		return nft.Jhash(uint32(n), hashSeed, offset, nft.Saddr(f), nft.ThSport())
	}
	return nft.Random(uint32(n), offset)
}

// PlanInput is the input for a Plan.
type PlanInput struct {
	Node      *cluster.Node
	Service   *cluster.Service
	Port      cluster.ServicePort
	Endpoints []*cluster.Endpoint // of the Service
	// Frontends are those that the service port owns. The plan keeps the slice.
	Frontends []ServedFrontend
	// Limits are nil if the budget covers the whole Service.
	Limits *Limits
	// Ejections are those of the endpoints, sorted.
	Ejections []cluster.Ejection
	// Number is the number of the service port, in case its plan needs one.
	Number uint32
	// Before is the plan that is replaced, nil if there is none. Endpoints that
	// are in both plans keep their index where possible.
	Before *Plan
}

// MakePlan returns the plan of a service port. It is nil if the service port
// owns no frontend. The targets have no ids yet. The error is the reason why
// the plan cannot be written. Remainder can use it nevertheless.
func (r *Ruleset) MakePlan(in *PlanInput) (*Plan, error) {
	if len(in.Frontends) == 0 {
		return nil, nil
	}
	p := &Plan{
		Service: in.Service, Port: in.Port, Frontends: in.Frontends, Slots: r.config.Slots(in.Service),
		Once: r.config.RetryAfter > 0 && !retries(in.Service, in.Port),
	}
	before := in.Before
	if before == nil {
		before = &Plan{}
	}
	r.candidates = candidates(r.candidates[:0], in.Endpoints, r.layout.family, in.Port, in.Node)
	all := r.candidates
	var forLocal []Target
	if slices.ContainsFunc(p.Frontends, func(f ServedFrontend) bool { return f.Policy == cluster.PolicyLocal }) {
		forLocal = usableForLocal(all, in.Node)
	}
	forCluster, forLocal := p.eject(in, usableForCluster(all, in.Node), forLocal)
	p.Cluster = arrange(before.Cluster, in.Limits.targets(forCluster))
	p.Local = arrange(before.Local, in.Limits.targets(forLocal))
	p.Serving = servingOf(all)
	p.leaveUnhealthy()
	p.Sources, p.Guarded = sourcesFor(r.layout.family, in)
	if err := p.setSlots(); err != nil {
		return p, err
	}
	p.Number = r.numberFor(p, before, in.Number)
	return p, nil
}

// sourcesFor returns the ranges of clients that may use the LoadBalancer IPs of
// a family, without overlaps. It reports whether clients are restricted at all.
// Ranges of the other family do not restrict this one. If a range contains this
// node's own address, the LoadBalancer IPs are added: the node uses them as the
// source address of its own traffic to them.
func sourcesFor(f nft.Family, in *PlanInput) (sources []netip.Prefix, guarded bool) {
	svc := in.Service
	if svc.SourceRanges == nil {
		return nil, false
	}
	guarded = true
	for _, p := range svc.SourceRanges {
		switch {
		case !f.Of(p.Addr()):
			guarded = guarded && (!p.IsValid() || p.Addr().Is4In6())
		case p.Bits() == 0:
			return nil, false
		default:
			sources = append(sources, p.Masked())
		}
	}
	if len(sources) == 0 {
		return nil, guarded
	}
	sources = in.Limits.ranges(disjoint(sources))
	containsNode := slices.ContainsFunc(in.Node.IPs, func(ip netip.Addr) bool {
		return slices.ContainsFunc(sources, func(p netip.Prefix) bool { return p.Contains(ip) })
	})
	if containsNode {
		for _, ip := range svc.LoadBalancerIPs {
			if f.Of(ip) {
				sources = append(sources, netip.PrefixFrom(ip, ip.BitLen()))
			}
		}
	}
	return disjoint(sources), true
}

// disjoint returns prefixes, sorted, without those that others contain.
func disjoint(prefixes []netip.Prefix) []netip.Prefix {
	prefixes = slices.Clone(prefixes)
	slices.SortFunc(prefixes, func(a, b netip.Prefix) int {
		return cmp.Or(a.Addr().Compare(b.Addr()), a.Bits()-b.Bits())
	})
	var out []netip.Prefix
	for _, p := range prefixes {
		if len(out) == 0 || !out[len(out)-1].Contains(p.Addr()) {
			out = append(out, p)
		}
	}
	return out
}

// list is a list of the endpoints of a service port.
type list struct {
	targets []Target
	slots   []uint16 // indexes of targets, nil if each target has one row
	service *cluster.Service
	once    bool // Plan.Once
}

// list returns the endpoints for traffic with a policy.
func (p *Plan) list(policy cluster.Policy) list {
	if policy == cluster.PolicyLocal {
		return list{p.Local, p.LocalSlots, p.Service, p.Once}
	}
	return list{p.Cluster, p.ClusterSlots, p.Service, p.Once}
}

// draw returns the way in which chains draw a row.
func (l list) draw() draw {
	once := l.once && l.rows() > 1
	switch {
	case l.slots != nil && l.service.Balance == cluster.BalanceSourceHash:
		return sourceHash
	case l.slots != nil && l.service.Balance == cluster.BalanceSourcePortHash:
		return sourcePortHash
	case l.slots == nil || isAscending(l.slots):
		if once {
			return randomOnce
		}
		return random
	case once:
		return weightedOnce
	}
	return weighted
}

// isAscending reports whether the slots are in the order of their targets, each
// of which has one slot at most.
func isAscending(slots []uint16) bool {
	for i := 1; i < len(slots); i++ {
		if slots[i] <= slots[i-1] {
			return false
		}
	}
	return true
}

// rows returns the number of rows from which chains draw.
func (l list) rows() int {
	if l.slots != nil {
		return len(l.slots)
	}
	return len(l.targets)
}

// indexed returns the targets of the rows.
func (l list) indexed() []Target {
	if l.slots == nil {
		return l.targets
	}
	out := make([]Target, len(l.slots))
	for i, t := range l.slots {
		out[i] = l.targets[t]
	}
	return out
}

// reachable returns the number of targets that have a weight above 0, or no
// need for one.
func (l list) reachable() (n int) {
	if l.slots == nil {
		return len(l.targets)
	}
	for _, t := range l.targets {
		if t.Weight.Int() > 0 {
			n++
		}
	}
	return n
}

// Rows returns the targets of the rows from which traffic with a policy draws.
func (p *Plan) Rows(policy cluster.Policy) []Target { return p.list(policy).indexed() }

// Remainder returns the plan of a service port whose wanted plan cannot be
// written: what is left of the plan before. These are the frontends that the
// service port still owns, as the kind and with the policy that they have now,
// the endpoints that the wanted plan uses for each policy, and the clients that
// both plans allow. If no frontend is left, the wanted frontends reject
// connections. The result is nil if wanted is nil. before can be nil.
//
// The result shares no slice of targets with the plan before.
func Remainder(before, wanted *Plan) *Plan {
	if wanted == nil {
		return nil
	}
	reject := &Plan{
		Service: wanted.Service, Port: wanted.Port, Frontends: wanted.Frontends, Serving: wanted.Serving,
	}
	if before == nil {
		return reject
	}
	plan := *before
	plan.Frontends = keep(wanted.Frontends, before.Frontends, func(f ServedFrontend) Frontend { return f.Frontend })
	if len(plan.Frontends) == 0 {
		return reject
	}
	plan.Cluster = arrange(before.Cluster, keep(before.Cluster, wanted.drawn(wanted.Cluster), Target.AddrPort))
	plan.Local = nil
	if len(plan.Cluster) > 0 {
		had := slices.Concat(before.Local, before.Cluster) // a policy can be Local only now
		plan.Local = arrange(before.Local, keep(had, wanted.drawn(wanted.Local), Target.AddrPort))
	}
	if plan.setSlots() != nil { // before had as many targets
		return reject
	}
	plan.Serving, plan.Ejected = wanted.Serving, wanted.Ejected
	if len(plan.Cluster) > 0 { // otherwise the ranges that the kernel may refuse protect nothing
		plan.Sources, plan.Guarded = allowedByBoth(before, wanted)
	}
	return &plan
}

// drawn returns the targets that new connections can get. Those without weight
// get none.
func (p *Plan) drawn(targets []Target) []Target {
	weightless := func(t Target) bool { return IsWeightless(p.Service, t.Weight) }
	if !slices.ContainsFunc(targets, weightless) {
		return targets
	}
	return slices.DeleteFunc(slices.Clone(targets), weightless)
}

// keep returns the values whose key one of the wanted values has, one for each
// key.
func keep[T any, K comparable](values, wanted []T, key func(T) K) (kept []T) {
	left := make(map[K]struct{}, len(wanted))
	for _, w := range wanted {
		left[key(w)] = struct{}{}
	}
	for _, v := range values {
		if _, ok := left[key(v)]; ok {
			kept = append(kept, v)
			delete(left, key(v))
		}
	}
	return kept
}

// allowedByBoth returns the clients that may use the LoadBalancer IPs according
// to both plans.
func allowedByBoth(p, q *Plan) (sources []netip.Prefix, guarded bool) {
	switch {
	case !q.Guarded:
		return p.Sources, p.Guarded
	case !p.Guarded:
		return q.Sources, true
	}
	for a, b := p.Sources, q.Sources; len(a) > 0 && len(b) > 0; {
		if a[0].Bits() < b[0].Bits() {
			a, b = b, a
		}
		switch { // a[0] contains b[0] only if they are equal
		case b[0].Contains(a[0].Addr()):
			sources = append(sources, a[0])
			a = a[1:]
		case a[0].Addr().Less(b[0].Addr()):
			a = a[1:]
		default:
			b = b[1:]
		}
	}
	return sources, true
}
