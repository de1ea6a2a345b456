package table

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/table/tabletest"
)

// After random calls of SetEndpoint, DeleteEndpoint and SetEndpoints, the
// desired endpoints are those of a map with the same changes, in order. The
// slices of the source are not modified.
func TestEndpointsOfSources(t *testing.T) {
	table := newUnconnected(t, sampleConfig(), nft.IPv4)
	c := tabletest.NewRandom(1, 2, nft.IPv4)
	name := cluster.ServiceName{Namespace: "ns", Name: "svc"}
	want := map[cluster.EndpointKey]*cluster.Endpoint{}
	type passed struct{ slice, content []*cluster.Endpoint }
	var all []passed
	for i := range 2000 {
		before := maps.Clone(want)
		clear(table.desired.dirty)
		source := fmt.Sprintf("slice-%d", c.IntN(3))
		switch e := c.Endpoint(); c.IntN(3) {
		case 0:
			table.SetEndpoint(name, e)
			want[e.EndpointKey] = e
		case 1:
			table.DeleteEndpoint(name, e.EndpointKey)
			delete(want, e.EndpointKey)
		case 2:
			endpoints := c.Endpoints(source)
			all = append(all, passed{endpoints, slices.Clone(endpoints)})
			table.SetEndpoints(name, source, endpoints)
			maps.DeleteFunc(want, func(k cluster.EndpointKey, _ *cluster.Endpoint) bool { return k.Source == source })
			for _, e := range endpoints {
				want[e.EndpointKey] = e
			}
		}
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
		if dirty != changed {
			t.Fatalf("step %d: got dirty %v, want %v", i, dirty, changed)
		}
	}
	for i, p := range all {
		if !slices.Equal(p.slice, p.content) {
			t.Errorf("slice %d was modified: got %v, want %v", i, p.slice, p.content)
		}
	}
}

// Services and endpoints of the other family are ignored. A Service that
// loses the family of the table is deleted.
func TestOtherFamily(t *testing.T) {
	table := newUnconnected(t, sampleConfig(), nft.IPv6)
	endpoints := []*cluster.Endpoint{tabletest.Endpoint("10.244.0.1")}
	table.SetEndpoints(cluster.ServiceName{Namespace: "ns", Name: "svc"}, "a", endpoints)
	svc := tabletest.NumberedService(1)
	table.SetService(svc)
	if n := len(table.desired.services); n != 0 {
		t.Errorf("got %d Services, want 0", n)
	}
	dual := *svc
	dual.Families = []nft.Family{nft.IPv4, nft.IPv6}
	table.SetService(&dual)
	table.SetService(svc)
	if s := table.desired.services[svc.Name]; s == nil || s.spec != nil || !s.ports[0].removed {
		t.Errorf("Service that lost the family: got %+v, want a removed port and no spec", s)
	}
}

// Endpoints in a service CIDR are ignored, and one event is recorded. The
// other endpoints of the Service are used.
func TestEndpointsInServiceCIDR(t *testing.T) {
	tabletest.NewNamespace(t)
	config, recorded := recordEvents()
	table := newTable(t, config, nft.IPv4)
	table.SetNode(tabletest.Node())
	svc := tabletest.Service("svc", "10.96.0.1", nil)
	table.SetService(svc)
	step := func(name, set string, want int) {
		t.Helper()
		tabletest.Sync(t, table)
		checkTable(t, table)
		if got := table.committed.rows[set]; got != want {
			t.Errorf("%s: got %d rows of %s, want %d", name, got, set, want)
		}
	}
	table.SetEndpoint(svc.Name, tabletest.Endpoint("10.96.0.2"))
	step("an endpoint in the CIDR", "no-endpoint-services", 1)
	table.SetEndpoint(svc.Name, tabletest.Endpoint("10.244.0.2"))
	step("another endpoint", "service-endpoints", 1)
	table.SetService(svc)
	step("the same Service", "service-endpoints", 1)
	events := *recorded
	want := "Endpoints of Service ns/svc are ignored, because they are in a service CIDR: 10.96.0.2"
	if len(events) != 1 || events[0].Note != want {
		t.Errorf("got events %+v, want one: %s", events, want)
	}
	node := tabletest.Node()
	node.ServiceCIDRs = nil
	table.SetNode(node)
	step("no service CIDR is known", "service-endpoints", 2)
}

func TestSummary(t *testing.T) {
	for want, values := range map[string][]string{
		"a":                        {"a"},
		"a, b, c, d, e":            {"a", "b", "c", "d", "e"},
		"a, b, c, d, e and 2 more": {"a", "b", "c", "d", "e", "f", "g"},
	} {
		if got := summary(values); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
