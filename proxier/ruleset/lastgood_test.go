package ruleset

import (
	"net/netip"
	"reflect"
	"slices"
	"testing"

	"github.com/nftproxy/nftproxy/proxier/cluster"
)

// LastGood keeps what the plan before and the wanted plan have in common, and
// allows no other client. Without a common frontend, the wanted ones reject.
func TestLastGood(t *testing.T) {
	frontends := func(addrs ...string) (all []ServedFrontend) {
		for _, a := range addrs {
			all = append(all, ServedFrontend{Frontend: Frontend{Addr: addr(a), Port: 80}})
		}
		return all
	}
	targets := func(addrs ...string) (all []Target) {
		for i, a := range addrs {
			all = append(all, Target{Addr: addr(a), Port: 8080, ID: uint32(i + 1)})
		}
		return all
	}
	prefixes := func(values ...string) (all []netip.Prefix) {
		for _, v := range values {
			all = append(all, netip.MustParsePrefix(v))
		}
		return all
	}
	old, now := &cluster.Service{}, &cluster.Service{}
	before := Plan{
		Service: old, Frontends: frontends("10.96.0.1", "192.0.2.1"),
		Cluster: targets("10.0.0.1", "10.0.0.2", "10.0.0.3"), Local: targets("10.0.0.1"),
		Sources: prefixes("10.0.0.0/8", "192.168.0.0/16"), Guarded: true,
	}
	plan := func(from Plan, change func(*Plan)) *Plan {
		change(&from)
		return &from
	}
	for name, tt := range map[string]struct{ before, wanted, want *Plan }{
		"nothing wanted": {&before, nil, nil},
		"new": {nil, plan(before, func(p *Plan) { p.Service = now }),
			&Plan{Service: now, Frontends: before.Frontends}},
		"other frontends": {&before,
			plan(before, func(p *Plan) { p.Service, p.Frontends = now, frontends("10.96.0.7") }),
			&Plan{Service: now, Frontends: frontends("10.96.0.7")}},
		"one frontend less, another more": {&before, plan(before, func(p *Plan) {
			p.Service, p.Frontends = now, frontends("192.0.2.1", "10.96.0.7")
		}), plan(before, func(p *Plan) { p.Frontends = frontends("192.0.2.1") })},
		"an endpoint less, another more": {&before, plan(before, func(p *Plan) {
			p.Cluster = targets("10.0.0.9", "10.0.0.1", "10.0.0.3")
		}), plan(before, func(p *Plan) {
			p.Cluster = []Target{before.Cluster[0], before.Cluster[2]}
		})},
		"no endpoint": {&before, plan(before, func(p *Plan) { p.Cluster, p.Local = nil, nil }),
			plan(before, func(p *Plan) { p.Cluster, p.Local = []Target{}, nil })},
		"a range less, another more": {&before, plan(before, func(p *Plan) {
			p.Sources = prefixes("192.168.0.0/16", "172.16.0.0/12")
		}), plan(before, func(p *Plan) { p.Sources = prefixes("192.168.0.0/16") })},
		"no longer guarded":   {&before, plan(before, func(p *Plan) { p.Sources, p.Guarded = nil, false }), &before},
		"guarded from now on": {plan(before, func(p *Plan) { p.Sources, p.Guarded = nil, false }), &before, &before},
		"ranges are wider and narrower": {&before, plan(before, func(p *Plan) {
			p.Sources = prefixes("0.0.0.0/1", "192.168.7.0/24", "192.168.9.0/24")
		}), plan(before, func(p *Plan) { p.Sources = prefixes("10.0.0.0/8", "192.168.7.0/24", "192.168.9.0/24") })},
		"another kind and policy": {plan(before, func(p *Plan) { p.Sources, p.Guarded, p.Local = nil, false, nil }),
			plan(before, func(p *Plan) {
				p.Frontends = slices.Clone(p.Frontends)
				p.Frontends[1].Kind, p.Frontends[1].Policy = LoadBalancerIP, cluster.PolicyLocal
			}), plan(before, func(p *Plan) {
				p.Frontends = slices.Clone(p.Frontends)
				p.Frontends[1].Kind, p.Frontends[1].Policy = LoadBalancerIP, cluster.PolicyLocal
			})},
	} {
		if got := LastGood(tt.before, tt.wanted); !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%s: got %+v, want %+v", name, got, tt.want)
		}
	}
}
