package proxier

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/nftproxy/nftproxy/nft"
)

// Whatever tells endpoints, one by one or all of a source, a backend has those that a map would have, in order.
func TestEndpointsOfSources(t *testing.T) {
	b, err := NewBackend(sampleConfig(), nft.IPv4)
	if err != nil {
		t.Fatal(err)
	}
	c := changer{rand.New(rand.NewPCG(1, 2)), nft.IPv4}
	name := ServiceName{"ns", "svc"}
	want := map[EndpointKey]*Endpoint{}
	told := map[string][]*Endpoint{} // that must not be modified
	for i := range 2000 {
		before := maps.Clone(want)
		clear(b.dirty)
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
			maps.DeleteFunc(want, func(k EndpointKey, _ *Endpoint) bool { return k.Source == source })
			for _, e := range all {
				want[e.EndpointKey] = e
			}
		}
		got := []*Endpoint{}
		if s := b.services[name]; s != nil {
			got = s.endpoints
		}
		keys := slices.SortedFunc(maps.Keys(want), compareEndpointKeys)
		if !slices.EqualFunc(got, keys, func(e *Endpoint, k EndpointKey) bool { return e.equal(want[k]) }) {
			t.Fatalf("step %d: endpoints %v, want %v", i, got, want)
		}
		if changed := !maps.EqualFunc(before, want, (*Endpoint).equal); changed != (len(b.dirty) > 0) {
			t.Fatalf("step %d: changed %v, noticed %v", i, changed, len(b.dirty) > 0)
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
	b, err := NewBackend(sampleConfig(), nft.IPv6)
	if err != nil {
		t.Fatal(err)
	}
	b.SetEndpoints(ServiceName{"ns", "svc"}, "a", []*Endpoint{simpleEndpoint("10.244.0.1")})
	svc := benchService(1)
	b.SetService(svc)
	if len(b.services) > 0 {
		t.Errorf("services %v", b.services)
	}
	dual := *svc
	dual.Families = []nft.Family{nft.IPv4, nft.IPv6}
	b.SetService(&dual)
	b.SetService(svc)
	if s := b.services[svc.Name]; s == nil || s.spec != nil || !s.ports[0].gone {
		t.Errorf("a Service that lost the family: %+v", s)
	}
}
