package table

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"

	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/table/tabletest"
)

// After random edits, the endpoints are the values of a map with the same
// changes, in order. Neither the lists of sources nor the endpoints before are
// modified.
func TestMergeEndpoints(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var all []*cluster.Endpoint
	want := make(map[cluster.EndpointKey]*cluster.Endpoint)
	for step := range 2000 {
		before, changes, copies := slices.Clone(all), make(edits), make(edits)
		for range 1 + r.IntN(3) {
			source := fmt.Sprint("slice-", r.IntN(3))
			var list []*cluster.Endpoint
			for i := range 9 {
				if e := tabletest.NumberedEndpoint(0, i); r.IntN(2) == 0 {
					e.Source = source
					list = append(list, e)
				}
			}
			changes[source], copies[source] = list, slices.Clone(list)
		}
		for source, list := range changes {
			maps.DeleteFunc(want, func(k cluster.EndpointKey, _ *cluster.Endpoint) bool { return k.Source == source })
			for _, e := range list {
				want[e.EndpointKey] = e
			}
		}
		got := changes.merge(all)
		keys := slices.SortedFunc(maps.Keys(want), cluster.EndpointKey.Compare)
		if !slices.EqualFunc(got, keys, func(e *cluster.Endpoint, k cluster.EndpointKey) bool { return e == want[k] }) {
			t.Fatalf("step %d: got %v, want %v", step, got, want)
		}
		if !slices.Equal(all, before) || !maps.EqualFunc(changes, copies, slices.Equal[[]*cluster.Endpoint]) {
			t.Fatalf("step %d: the endpoints before, or those of a source, were modified", step)
		}
		all = got
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
