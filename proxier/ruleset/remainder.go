package ruleset

import (
	"net/netip"
	"slices"
)

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
