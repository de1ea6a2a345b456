package table

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/table/tabletest"
)

// Whatever tells endpoints, one by one or all of a source, a table has those that a map would have, in order.
func TestEndpointsOfSources(t *testing.T) {
	table := unconnected(t, sampleConfig(), nft.IPv4)
	c := changer{rand.New(rand.NewPCG(1, 2)), nft.IPv4}
	name := cluster.ServiceName{Namespace: "ns", Name: "svc"}
	want := map[cluster.EndpointKey]*cluster.Endpoint{}
	told := map[string][]*cluster.Endpoint{} // that must not be modified
	for i := range 2000 {
		before := maps.Clone(want)
		clear(table.desired.dirty)
		source := fmt.Sprintf("slice-%d", c.IntN(3))
		switch e := c.endpoint(); c.IntN(3) {
		case 0:
			table.SetEndpoint(name, e)
			want[e.EndpointKey] = e
		case 1:
			table.DeleteEndpoint(name, e.EndpointKey)
			delete(want, e.EndpointKey)
		case 2:
			all := c.endpoints(source)
			told[fmt.Sprint(i)] = slices.Clone(all)
			told[fmt.Sprint(i, "told")] = all
			table.SetEndpoints(name, source, all)
			maps.DeleteFunc(want, func(k cluster.EndpointKey, _ *cluster.Endpoint) bool { return k.Source == source })
			for _, e := range all {
				want[e.EndpointKey] = e
			}
		}
		got := []*cluster.Endpoint{}
		if s := table.desired.services[name]; s != nil {
			got = s.endpoints
		}
		keys := slices.SortedFunc(maps.Keys(want), cluster.EndpointKey.Compare)
		if !slices.EqualFunc(got, keys, func(e *cluster.Endpoint, k cluster.EndpointKey) bool { return e.Equal(want[k]) }) {
			t.Fatalf("step %d: endpoints %v, want %v", i, got, want)
		}
		if changed := !maps.EqualFunc(before, want, (*cluster.Endpoint).Equal); changed != (len(table.desired.dirty) > 0) {
			t.Fatalf("step %d: changed %v, noticed %v", i, changed, len(table.desired.dirty) > 0)
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
	table := unconnected(t, sampleConfig(), nft.IPv6)
	table.SetEndpoints(cluster.ServiceName{Namespace: "ns", Name: "svc"}, "a", []*cluster.Endpoint{tabletest.Endpoint("10.244.0.1")})
	svc := tabletest.NumberedService(1)
	table.SetService(svc)
	if len(table.desired.services) > 0 {
		t.Errorf("services %v", table.desired.services)
	}
	dual := *svc
	dual.Families = []nft.Family{nft.IPv4, nft.IPv6}
	table.SetService(&dual)
	table.SetService(svc)
	if s := table.desired.services[svc.Name]; s == nil || s.spec != nil || !s.ports[0].removed {
		t.Errorf("a Service that lost the family: %+v", s)
	}
}

// Endpoints in a service CIDR are not used and reported once; the other endpoints
// of the Service are.
func TestEndpointsInServiceCIDR(t *testing.T) {
	tabletest.NewNamespace(t)
	var recorded tabletest.Events
	config := sampleConfig()
	config.Events = &recorded
	table := newTable(t, config, nft.IPv4)
	table.SetNode(tabletest.Node())
	svc := tabletest.Service("svc", "10.96.0.1", nil)
	table.SetService(svc)
	table.SetEndpoint(svc.Name, tabletest.Endpoint("10.96.0.2"))
	tabletest.Sync(t, table)
	checkTable(t, table)
	if n := table.committed.rows["no-endpoint-services"]; n != 1 {
		t.Errorf("%d Services without endpoints, want 1", n)
	}
	table.SetEndpoint(svc.Name, tabletest.Endpoint("10.244.0.2"))
	tabletest.Sync(t, table)
	table.SetService(svc)
	tabletest.Sync(t, table)
	checkTable(t, table)
	if n := table.committed.rows["service-endpoints"]; n != 1 {
		t.Errorf("%d endpoints, want 1", n)
	}
	if len(recorded) != 1 || !strings.Contains(recorded[0].Note, "ns/svc") || !strings.Contains(recorded[0].Note, "10.96.0.2") {
		t.Errorf("events %+v, want one", recorded)
	}
	node := tabletest.Node()
	node.ServiceCIDRs = nil // no CIDR is known: nothing is invalid
	table.SetNode(node)
	tabletest.Sync(t, table)
	if n := table.committed.rows["service-endpoints"]; n != 2 {
		t.Errorf("%d endpoints without service CIDRs, want 2", n)
	}
}
