package table

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
	"github.com/nftproxy/nftproxy/proxier/table/tabletest"
)

// budgeted returns a Table with budgets, and the events that it records.
func budgeted(t *testing.T, budgets ruleset.Budgets) (*Table, *tabletest.Events) {
	t.Helper()
	tabletest.NewNamespace(t)
	config, recorded := recordEvents()
	config.Rules.Budgets = budgets
	table := newTable(t, config, nft.IPv4)
	table.SetNode(tabletest.Node())
	return table, recorded
}

// served returns the numbers of frontends and of endpoints of a Service in the
// kernel.
func served(table *Table, name cluster.ServiceName) string {
	frontends, endpoints := 0, 0
	for p := range plans(table) {
		if plan := p.plan(); p.service.name == name {
			frontends, endpoints = frontends+len(plan.Frontends), endpoints+len(plan.Cluster)
		}
	}
	return fmt.Sprintf("%d/%d", frontends, endpoints)
}

// A huge Service has as many rows as its budget allows. Its claims follow:
// other Services get the frontends that it does not have.
func TestBudgetOfService(t *testing.T) {
	const budget = 2000
	table, recorded := budgeted(t, ruleset.Budgets{Service: budget})
	var ips []netip.Addr
	for i := range 20_000 {
		ips = append(ips, netip.AddrFrom4([4]byte{192, 0, byte(i >> 8), byte(i)}))
	}
	huge := tabletest.Service("huge", "10.96.0.1", func(s *cluster.Service) {
		s.ExternalIPs, s.Ports = ips, nil
		for i := range 50 {
			p := cluster.ServicePort{Name: fmt.Sprint("p", i), Protocol: cluster.TCP, Port: uint16(80 + i)}
			s.Ports = append(s.Ports, p)
		}
	})
	heir := tabletest.Service("heir", "10.96.0.2", func(s *cluster.Service) {
		s.ExternalIPs, s.Created = ips[:100], time.Unix(1, 0)
	})
	table.SetService(huge)
	table.SetService(heir)
	for i := range 30 {
		tabletest.SetEndpoint(table, huge.Name, tabletest.Endpoint(fmt.Sprintf("10.244.0.%d", i+1)))
	}
	tabletest.Sync(t, table)
	checkTable(t, table)
	if got, want := served(table, huge.Name), "350/0"; got != want {
		t.Errorf("got frontends/endpoints %s, want %s", got, want)
	}
	rows := 0
	for _, n := range table.Stats().Rows {
		rows += n
	}
	if rows > 2*budget || len(table.desired.claims.owners) > budget {
		t.Errorf("got %d rows and %d claims, want less than %d", rows, len(table.desired.claims.owners), budget)
	}
	const note = "Service ns/huge exceeds its budget of 2000 rows: " +
		"it is served with 6 of 20000 external IPs and LoadBalancer IPs"
	events := *recorded
	if !slices.ContainsFunc(events, func(e cluster.Event) bool {
		return e.Reason == cluster.ReasonBudget && strings.HasPrefix(e.Note, note)
	}) {
		t.Errorf("got events %+v, want %q", events, note)
	}
	if view, _ := table.Service(huge.Name); !strings.Contains(view.Reductions[nft.IPv4], "6 of 20000") {
		t.Errorf("got %q, want how the Service is reduced", view.Reductions)
	}

	small := *huge
	small.ExternalIPs = ips[:5]
	table.SetService(&small)
	tabletest.Sync(t, table)
	checkTable(t, table)
	if s := table.Stats(); s.Reduced != 0 || len(recorded.Of(cluster.ReasonBudget)) != 1 {
		t.Errorf("a smaller Service: got %d reduced Services, events %+v; want 0 and one", s.Reduced, *recorded)
	}
}

// Endpoints are reduced before frontends. Those that are left out still serve
// UDP flows, and the reason is visible.
func TestBudgetOfEndpoints(t *testing.T) {
	table, _ := budgeted(t, ruleset.Budgets{Service: 100})
	svc := tabletest.Service("svc", "10.96.0.1", func(s *cluster.Service) { s.Ports[0].Protocol = cluster.UDP })
	table.SetService(svc)
	for i := range 60 {
		e := tabletest.Endpoint(fmt.Sprintf("10.244.0.%d", i+1))
		e.Ports = []cluster.EndpointPort{{Name: "http", Protocol: cluster.UDP, Port: 8080}}
		tabletest.SetEndpoint(table, svc.Name, e)
	}
	tabletest.Sync(t, table)
	checkTable(t, table)
	view, _ := table.Service(svc.Name)
	plan, unused := view.Ports[0].Plan, 0
	for _, u := range view.Ports[0].Endpoints {
		if u.Cluster == ruleset.UnusedBudget {
			unused++
		}
	}
	if len(plan.Cluster) != 48 || unused != 12 || len(plan.Serving) != 60 {
		t.Errorf("got %d endpoints, %d left out and %d serving, want 48, 12 and 60",
			len(plan.Cluster), unused, len(plan.Serving))
	}
}

// The oldest Services of a namespace get its budget. A change has no effect on
// older Services, nor on other namespaces.
func TestBudgetOfNamespace(t *testing.T) {
	table, recorded := budgeted(t, ruleset.Budgets{Namespace: 100})
	name := func(i int) cluster.ServiceName { return cluster.ServiceName{Namespace: "ns", Name: fmt.Sprint("s", i)} }
	const services = 4
	for i := range services {
		table.SetService(tabletest.Service(name(i).Name, fmt.Sprintf("10.96.0.%d", i+1), func(s *cluster.Service) {
			s.Created = time.Unix(int64(i), 0)
		}))
		for e := range 20 {
			tabletest.SetEndpoint(table, name(i), tabletest.Endpoint(fmt.Sprintf("10.244.%d.%d", i, e+1)))
		}
	}
	other := tabletest.NumberedService(9)
	table.SetService(other)
	tabletest.SetEndpoint(table, other.Name, tabletest.NumberedEndpoint(9, 1))
	step := func(when string, want ...string) {
		t.Helper()
		tabletest.Sync(t, table)
		checkTable(t, table)
		var got []string
		for i := range services {
			got = append(got, served(table, name(i)))
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: got frontends/endpoints %q, want %q", when, got, want)
		}
	}
	const all, one, none = "1/20", "1/1", "0/0"
	step("each needs 44 rows", all, all, "1/4", one)
	if got, want := recorded.Of(cluster.ReasonBudget), []string{"ns/s2", "ns/s3"}; len(got) != len(want) {
		t.Errorf("got events for %q, want %q", got, want)
	}
	tabletest.SetEndpoint(table, name(1), tabletest.Endpoint("10.244.1.21"))
	table.desired.mergeEndpoints()
	table.desired.applyBudgets()
	if got := slices.SortedFunc(maps.Keys(table.desired.fresh), compareServices); len(got) != 2 {
		t.Errorf("got %d changed Services, want 2", len(got))
	}
	step("an endpoint more", all, "1/21", "1/3", one)
	table.DeleteService(name(0))
	step("the oldest deleted", none, "1/21", all, "1/3")
	table.DeleteService(name(1))
	step("two deleted", none, none, all, all)
	for i := range services {
		table.DeleteService(name(i))
		for e := range 21 {
			gone := tabletest.Endpoint(fmt.Sprintf("10.244.%d.%d", i, e+1))
			tabletest.DeleteEndpoint(table, name(i), gone.EndpointKey)
		}
	}
	step("all deleted", none, none, none, none)
	table.desired.forgetNamespaces(time.Now().Add(time.Hour))
	if d := &table.desired; len(d.namespaces) != 1 || len(d.budgets.reduced) != 0 {
		t.Errorf("got %d namespaces and %d reduced Services after the Services were deleted, want one and none",
			len(d.namespaces), len(d.budgets.reduced))
	}
}
