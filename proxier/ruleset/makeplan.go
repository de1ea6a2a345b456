package ruleset

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
)

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
