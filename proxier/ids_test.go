package proxier

import (
	"net/netip"
	"testing"
	"time"
)

// affinityPlan returns a plan of a service port with session affinity.
func affinityPlan(endpoints ...string) *plan {
	p := &plan{service: &Service{Name: ServiceName{"default", "web"}, AffinityTimeout: time.Hour}, port: ServicePort{Protocol: TCP, Port: 80}}
	for _, e := range endpoints {
		p.cluster = append(p.cluster, target{AddrPort: netip.MustParseAddrPort(e)})
	}
	return p
}

// An endpoint that is away for a moment keeps its clients; one that comes back later does not.
func TestIDsOfAbsentEndpoints(t *testing.T) {
	ids := newAffinityIDs()
	both := affinityPlan("10.244.0.1:80", "10.244.0.2:80")
	ids.assign(&plan{}, both)
	first := both.cluster[0].id
	replace := func(before, next *plan) *plan {
		ids.beginPlanning()
		ids.assign(before, next)
		ids.committed()
		ids.release(before, next)
		return next
	}

	one := replace(both, affinityPlan("10.244.0.2:80"))
	back := replace(one, affinityPlan("10.244.0.1:80", "10.244.0.2:80"))
	if got := back.cluster[0].id; got != first {
		t.Errorf("back after a moment, the endpoint has id %d, had %d", got, first)
	}

	one = replace(back, affinityPlan("10.244.0.2:80"))
	for e, was := range ids.absent {
		was.until = time.Now().Add(-time.Second)
		ids.absent[e] = was
	}
	late := replace(one, affinityPlan("10.244.0.1:80", "10.244.0.2:80"))
	if got := late.cluster[0].id; got == first {
		t.Errorf("back after a long time, the endpoint has the same id %d", got)
	}
	if late.cluster[1].id != both.cluster[1].id {
		t.Errorf("the endpoint that stayed has id %d, had %d", late.cluster[1].id, both.cluster[1].id)
	}

	for e, was := range ids.absent {
		was.until = time.Now().Add(-time.Second)
		ids.absent[e] = was
	}
	if ids.beginPlanning(); len(ids.absent) != 0 {
		t.Errorf("the ids of %d endpoints are still kept", len(ids.absent))
	}
}
