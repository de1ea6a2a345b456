package ruleset

import (
	"net/netip"
	"slices"

	"github.com/nftproxy/nftproxy/proxier/cluster"
)

// LastGood returns the plan of a service port whose wanted plan cannot be
// written: what is left of the plan before. These are the frontends that the
// service port still owns, the endpoints that the wanted plan uses, and the
// clients that it allows. If no frontend is left, the wanted frontends reject
// connections. The result is nil if wanted is nil. before can be nil.
func LastGood(before, wanted *Plan) *Plan {
	if wanted == nil {
		return nil
	}
	reject := &Plan{Service: wanted.Service, Port: wanted.Port, Frontends: wanted.Frontends}
	if before == nil {
		return reject
	}
	frontend := func(f ServedFrontend) Frontend { return f.Frontend }
	plan := *before
	if plan.Frontends = keep(before.Frontends, wanted.Frontends, frontend); len(plan.Frontends) == 0 {
		return reject
	}
	used := slices.Concat(wanted.Cluster, wanted.Local)
	plan.Cluster = arrange(before.Cluster, keep(before.Cluster, used, Target.AddrPort))
	plan.Local = nil
	if len(plan.Cluster) > 0 {
		plan.Local = arrange(before.Local, keep(before.Local, used, Target.AddrPort))
	}
	if plan.setTables() != nil { // before had as many targets
		return reject
	}
	plan.Serving = wanted.Serving
	if wanted.Guarded {
		plan.Guarded = true
		plan.Sources = keep(before.Sources, wanted.Sources, netip.Prefix.Masked)
	}
	return &plan
}

// EndpointsOf returns the number of endpoints that clients of a frontend can
// reach. It is 0 for a nil plan.
func (p *Plan) EndpointsOf(f Frontend) int {
	if p == nil {
		return 0
	}
	for _, served := range p.Frontends {
		switch {
		case served.Frontend != f:
		case served.Policy == cluster.PolicyLocal && served.IsClusterIP():
			return len(p.Local)
		default:
			return len(p.Cluster)
		}
	}
	return 0
}

// keep returns the values whose key one of the wanted values has.
func keep[T any, K comparable](values, wanted []T, key func(T) K) (kept []T) {
	keys := make(map[K]struct{}, len(wanted))
	for _, w := range wanted {
		keys[key(w)] = struct{}{}
	}
	for _, v := range values {
		if _, ok := keys[key(v)]; ok {
			kept = append(kept, v)
		}
	}
	return kept
}
