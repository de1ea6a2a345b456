package table

import (
	"fmt"
	"maps"
	"runtime"
	"slices"
	"testing"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/table/tabletest"
)

// After random calls of SetEndpoints, the desired endpoints are the values of a
// map with the same changes, in order.
// The slices of the source are not modified.
func TestEndpointsOfSources(t *testing.T) {
	t.Parallel()
	table := newUnconnected(t, sampleConfig())
	c := tabletest.NewRandom(1, 2, nft.IPv4)
	name := cluster.ServiceName{Namespace: "ns", Name: "svc"}
	want := map[cluster.EndpointKey]*cluster.Endpoint{}
	type passed struct{ slice, content []*cluster.Endpoint }
	var all []passed
	before := maps.Clone(want)
	for i := range 5000 {
		source := fmt.Sprintf("slice-%d", c.IntN(3))
		endpoints := c.Endpoints(source)
		all = append(all, passed{endpoints, slices.Clone(endpoints)})
		table.SetEndpoints(name, source, endpoints)
		maps.DeleteFunc(want, func(k cluster.EndpointKey, _ *cluster.Endpoint) bool { return k.Source == source })
		for _, e := range endpoints {
			want[e.EndpointKey] = e
		}
		if c.IntN(3) > 0 {
			continue
		}
		clear(table.desired.dirty)
		table.desired.mergeEndpoints()
		var got []*cluster.Endpoint
		if s := table.desired.services[name]; s != nil {
			got = s.endpoints
		}
		keys := slices.SortedFunc(maps.Keys(want), cluster.EndpointKey.Compare)
		same := func(e *cluster.Endpoint, k cluster.EndpointKey) bool { return e.Equal(want[k]) }
		if !slices.EqualFunc(got, keys, same) {
			t.Fatalf("step %d: got endpoints %v, want %v", i, got, want)
		}
		dirty, changed := len(table.desired.dirty) > 0, !maps.EqualFunc(before, want, (*cluster.Endpoint).Equal)
		if dirty != changed && len(want) > 0 {
			t.Fatalf("step %d: got dirty %v, want %v", i, dirty, changed)
		}
		before = maps.Clone(want)
	}
	for i, p := range all {
		if !slices.Equal(p.slice, p.content) {
			t.Errorf("slice %d was modified: got %v, want %v", i, p.slice, p.content)
		}
	}
}

// Setting the endpoints of many sources, one by one, takes linear memory.
func TestManySources(t *testing.T) {
	name := cluster.ServiceName{Namespace: "ns", Name: "svc"}
	allocated := func(sources int) uint64 {
		table := newUnconnected(t, sampleConfig())
		endpoints := make([]*cluster.Endpoint, sources)
		for i := range endpoints {
			endpoints[i] = tabletest.NumberedEndpoint(0, i)
			endpoints[i].Source = fmt.Sprint("slice-", i)
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for i, e := range endpoints {
			table.SetEndpoints(name, e.Source, endpoints[i:i+1])
		}
		table.desired.mergeEndpoints()
		runtime.ReadMemStats(&after)
		if got := len(table.desired.services[name].endpoints); got != sources {
			t.Errorf("got %d endpoints, want %d", got, sources)
		}
		return after.TotalAlloc - before.TotalAlloc
	}
	if few, many := allocated(500), allocated(4000); many > 16*few {
		t.Errorf("8 times as many sources: got %d bytes, %d before", many, few)
	}
}
