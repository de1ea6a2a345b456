package table

import (
	"testing"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/table/tabletest"
)

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
		if got := table.Stats().Rows[set]; got != want {
			t.Errorf("%s: got %d rows of %s, want %d", name, got, set, want)
		}
	}
	tabletest.SetEndpoint(table, svc.Name, tabletest.Endpoint("10.96.0.2"))
	step("an endpoint in the CIDR", "service-targets", 0)
	tabletest.SetEndpoint(table, svc.Name, tabletest.Endpoint("10.244.0.2"))
	step("another endpoint", "service-targets", 1)
	table.SetService(svc)
	step("the same Service", "service-targets", 1)
	events := *recorded
	want := "Endpoints of Service ns/svc are ignored, because they are in a service CIDR: 10.96.0.2"
	if len(events) != 1 || events[0].Note != want {
		t.Errorf("got events %+v, want one: %s", events, want)
	}
	node := tabletest.Node()
	node.ServiceCIDRs = nil
	table.SetNode(node)
	step("no service CIDR is known", "service-targets", 2)
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
