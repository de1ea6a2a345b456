package table

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/table/tabletest"
)

// Whatever tells endpoints, one by one or all of a source, a table has those that a map would have, in order.
func TestEndpointsOfSources(t *testing.T) {
	b := unconnected(t, sampleConfig(), nft.IPv4)
	c := changer{rand.New(rand.NewPCG(1, 2)), nft.IPv4}
	name := cluster.ServiceName{Namespace: "ns", Name: "svc"}
	want := map[cluster.EndpointKey]*cluster.Endpoint{}
	told := map[string][]*cluster.Endpoint{} // that must not be modified
	for i := range 2000 {
		before := maps.Clone(want)
		clear(b.desired.dirty)
		source := fmt.Sprintf("slice-%d", c.IntN(3))
		switch e := c.endpoint(); c.IntN(3) {
		case 0:
			b.SetEndpoint(name, e)
			want[e.EndpointKey] = e
		case 1:
			b.DeleteEndpoint(name, e.EndpointKey)
			delete(want, e.EndpointKey)
		case 2:
			all := c.endpoints(source)
			told[fmt.Sprint(i)] = slices.Clone(all)
			told[fmt.Sprint(i, "told")] = all
			b.SetEndpoints(name, source, all)
			maps.DeleteFunc(want, func(k cluster.EndpointKey, _ *cluster.Endpoint) bool { return k.Source == source })
			for _, e := range all {
				want[e.EndpointKey] = e
			}
		}
		got := []*cluster.Endpoint{}
		if s := b.desired.services[name]; s != nil {
			got = s.endpoints
		}
		keys := slices.SortedFunc(maps.Keys(want), cluster.EndpointKey.Compare)
		if !slices.EqualFunc(got, keys, func(e *cluster.Endpoint, k cluster.EndpointKey) bool { return e.Equal(want[k]) }) {
			t.Fatalf("step %d: endpoints %v, want %v", i, got, want)
		}
		if changed := !maps.EqualFunc(before, want, (*cluster.Endpoint).Equal); changed != (len(b.desired.dirty) > 0) {
			t.Fatalf("step %d: changed %v, noticed %v", i, changed, len(b.desired.dirty) > 0)
		}
	}
	for at, all := range told {
		if again := told[at+"told"]; again != nil && !slices.Equal(all, again) {
			t.Errorf("what was told in step %s was modified", at)
		}
	}
}

// Services and endpoints of the other family make nothing known; a Service that has the family no more is gone.
func TestOtherFamily(t *testing.T) {
	b := unconnected(t, sampleConfig(), nft.IPv6)
	b.SetEndpoints(cluster.ServiceName{Namespace: "ns", Name: "svc"}, "a", []*cluster.Endpoint{tabletest.Endpoint("10.244.0.1")})
	svc := tabletest.NumberedService(1)
	b.SetService(svc)
	if len(b.desired.services) > 0 {
		t.Errorf("services %v", b.desired.services)
	}
	dual := *svc
	dual.Families = []nft.Family{nft.IPv4, nft.IPv6}
	b.SetService(&dual)
	b.SetService(svc)
	if s := b.desired.services[svc.Name]; s == nil || s.spec != nil || !s.ports[0].removed {
		t.Errorf("a Service that lost the family: %+v", s)
	}
}
