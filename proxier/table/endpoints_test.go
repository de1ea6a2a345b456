package table

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"runtime"
	"slices"
	"testing"

	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/test/tabletest"
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

// A Service has at most as many endpoints as its limit, and all up to it. Which
// ones depends on the objects alone, not on their history.
func TestEndpointLimit(t *testing.T) {
	const most = 20
	r := rand.New(rand.NewPCG(1, 2))
	s, all := new(serviceState), make(edits)
	limited := 0
	for step := range 3000 {
		changed := make(edits)
		for range 1 + r.IntN(3) {
			source := fmt.Sprint("slice-", r.IntN(8))
			changed[source] = nil
			for i := range r.IntN(9) * r.IntN(2) {
				e := tabletest.NumberedEndpoint(0, i)
				e.Source = source
				changed[source] = append(changed[source], e)
			}
		}
		maps.Copy(all, changed)
		total := 0
		for _, list := range all {
			total += len(list)
		}
		s.endpoints = s.limit(changed, most).merge(s.endpoints)
		fresh := new(serviceState)
		want := fresh.limit(maps.Clone(all), most).merge(nil)
		if !slices.EqualFunc(s.endpoints, want, (*cluster.Endpoint).Equal) {
			t.Fatalf("step %d: got %d endpoints, a new process has %d others", step, len(s.endpoints), len(want))
		}
		if len(want) != min(total, most) || s.leftOut != total-len(want) || (s.sources != nil) != (s.leftOut > 0) {
			t.Fatalf("step %d: got %d of %d endpoints, %d left out", step, len(want), total, s.leftOut)
		}
		if s.leftOut > 0 {
			limited++
		}
	}
	if limited < 500 || limited > 2500 {
		t.Errorf("%d of 3,000 states exceed the limit", limited)
	}
}

// The endpoints of a Service that exceeds the limit are merged without the
// others, and a report describes this.
func TestTooManyEndpoints(t *testing.T) {
	table, name := newUnconnected(t, sampleConfig()), tabletest.NumberedService(0).Name
	table.SetService(tabletest.NumberedService(0))
	for n := range 3 {
		source, all := fmt.Sprint("slice-", n), make([]*cluster.Endpoint, maxEndpoints/2)
		for i := range all {
			all[i] = tabletest.Endpoint(netip.AddrFrom4([4]byte{100, byte(i >> 16), byte(i >> 8), byte(i)}).String())
			all[i].Source = source
		}
		table.SetEndpoints(name, source, all)
	}
	_ = table.Sync() // it fails without a kernel, after the endpoints were merged
	s := table.desired.services[name]
	if len(s.endpoints) != maxEndpoints {
		t.Errorf("got %d endpoints, want %d", len(s.endpoints), maxEndpoints)
	}
	view, _ := table.Service(name)
	const want = "exceeds the limit of 100000 endpoints: it is served with 100000 of 150000 endpoints of each port"
	if got := view.Reductions[table.Family()]; got != want {
		t.Errorf("got %q, want %q", got, want)
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
