package table

import (
	"net/netip"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
)

// affinityPlan returns a plan of a service port with session affinity.
func affinityPlan(endpoints ...string) *ruleset.Plan {
	p := &ruleset.Plan{
		Service: &cluster.Service{
			Name: cluster.ServiceName{Namespace: "default", Name: "web"}, AffinityTimeout: time.Hour,
		},
		Port: cluster.ServicePort{Protocol: cluster.TCP, Port: 80},
	}
	for _, e := range endpoints {
		p.Cluster = append(p.Cluster, ruleset.Target{AddrPort: netip.MustParseAddrPort(e)})
	}
	return p
}

// An endpoint that is away for a moment keeps its clients; one that comes back later does not.
func TestIDsOfAbsentEndpoints(t *testing.T) {
	ids := newAffinityIDs()
	both := affinityPlan("10.244.0.1:80", "10.244.0.2:80")
	ids.assign(&ruleset.Plan{}, both)
	first := both.Cluster[0].ID
	replace := func(before, next *ruleset.Plan) *ruleset.Plan {
		ids.beginPlanning()
		ids.assign(before, next)
		ids.committed()
		ids.release(before, next)
		return next
	}

	one := replace(both, affinityPlan("10.244.0.2:80"))
	back := replace(one, affinityPlan("10.244.0.1:80", "10.244.0.2:80"))
	if got := back.Cluster[0].ID; got != first {
		t.Errorf("back after a moment, the endpoint has id %d, had %d", got, first)
	}

	one = replace(back, affinityPlan("10.244.0.2:80"))
	for e, was := range ids.absent {
		was.until = time.Now().Add(-time.Second)
		ids.absent[e] = was
	}
	late := replace(one, affinityPlan("10.244.0.1:80", "10.244.0.2:80"))
	if got := late.Cluster[0].ID; got == first {
		t.Errorf("back after a long time, the endpoint has the same id %d", got)
	}
	if late.Cluster[1].ID != both.Cluster[1].ID {
		t.Errorf("the endpoint that stayed has id %d, had %d", late.Cluster[1].ID, both.Cluster[1].ID)
	}

	for e, was := range ids.absent {
		was.until = time.Now().Add(-time.Second)
		ids.absent[e] = was
	}
	if ids.beginPlanning(); len(ids.absent) != 0 {
		t.Errorf("the ids of %d endpoints are still kept", len(ids.absent))
	}
}
