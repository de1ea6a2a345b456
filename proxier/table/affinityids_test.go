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
		at := netip.MustParseAddrPort(e)
		p.Cluster = append(p.Cluster, ruleset.Target{Addr: at.Addr(), Port: at.Port()})
	}
	return p
}

// A plan with an absent endpoint that is not committed does not keep the id
// longer.
func TestAbsentIDInPlan(t *testing.T) {
	ids := newAffinityIDs(1)
	e := affinityEndpoint{"port", netip.MustParseAddrPort("10.244.1.5:8080")}
	absent := knownID{clientID{id: firstID}, time.Now().Add(absenceTime), false}
	ids.known[e] = absent
	if got := ids.earlier(e); got != absent.clientID {
		t.Errorf("got id %v, want %v", got, absent.clientID)
	}
	if got := ids.known[e]; got != absent {
		t.Errorf("in a plan: got %v, want %v", got, absent)
	}
}

// An endpoint that is absent for less than absenceTime keeps its id, and so
// its clients. If it is added again later, it gets another id.
func TestIDsOfAbsentEndpoints(t *testing.T) {
	ids := newAffinityIDs(1)
	both := affinityPlan("10.244.0.1:80", "10.244.0.2:80")
	ids.assign(nil, both)
	first := both.Cluster[0].ID
	replace := func(before, next *ruleset.Plan) *ruleset.Plan {
		ids.forgetOld()
		ids.assign(before, next)
		ids.release(before, next)
		return next
	}
	expire := func() {
		for e, was := range ids.known {
			was.until = time.Now().Add(-time.Second)
			ids.known[e] = was
		}
	}

	one := replace(both, affinityPlan("10.244.0.2:80"))
	again := replace(one, affinityPlan("10.244.0.1:80", "10.244.0.2:80"))
	if got := again.Cluster[0].ID; got != first {
		t.Errorf("id after a short absence: got %d, want %d", got, first)
	}

	one = replace(again, affinityPlan("10.244.0.2:80"))
	expire()
	again = replace(one, affinityPlan("10.244.0.1:80", "10.244.0.2:80"))
	if got := again.Cluster[0].ID; got == first {
		t.Errorf("id after a long absence: got %d again, want another one", got)
	}
	if got, want := again.Cluster[1].ID, both.Cluster[1].ID; got != want {
		t.Errorf("id of the endpoint that stayed: got %d, want %d", got, want)
	}

	expire()
	if ids.forgetOld(); len(ids.known) != 0 {
		t.Errorf("got %d ids of absent endpoints, want 0", len(ids.known))
	}
}
