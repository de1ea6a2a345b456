package table

import (
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/table/tabletest"
)

// After a sync, the view of each Service has the plans that were committed.
func TestViewOfSample(t *testing.T) {
	tabletest.NewNamespace(t)
	for _, f := range []nft.Family{nft.IPv4, nft.IPv6} {
		table := newTable(t, sampleConfig(), f)
		tabletest.PassSample(table)
		if view, _ := table.Service(cluster.ServiceName{Namespace: "default", Name: "web"}); !view.Pending {
			t.Error("before the sync: got no pending change")
		}
		tabletest.Sync(t, table)
		names := slices.Collect(table.ServiceNames())
		if len(names) != 7 || table.Stats().Services != 7 {
			t.Fatalf("got Services %v and %d, want 7", names, table.Stats().Services)
		}
		endpoints := 0
		for _, name := range names {
			view, ok := table.Service(name)
			if !ok || view.Pending || len(view.Ports) != 1 {
				t.Fatalf("got view %+v, %v", view, ok)
			}
			port := view.Ports[0]
			got, want := *port.Plan, *table.desired.services[name].ports[0].plan()
			got.ClientSet = want.ClientSet // a view has no affinity set and no ids
			for i := range got.Cluster {
				got.Cluster[i].ID = want.Cluster[i].ID
			}
			if !reflect.DeepEqual(got, want) {
				t.Errorf("%s: got plan %+v, want %+v", name, got, want)
			}
			endpoints += len(want.Cluster)
		}
		stats := table.Stats()
		if stats.ServicePorts != 7 || stats.Endpoints != endpoints {
			t.Errorf("got %d service ports and %d endpoints, want 7 and %d", stats.ServicePorts, stats.Endpoints,
				endpoints)
		}
	}
}

// A view names the owner of each frontend, and the reason why a service port is
// refused. The statistics list both.
func TestViewOfProblems(t *testing.T) {
	tabletest.NewNamespace(t)
	table := newTable(t, sampleConfig(), nft.IPv4)
	table.SetNode(tabletest.Node())
	service := func(name, ip string, created int64) {
		table.SetService(tabletest.Service(name, ip, func(s *cluster.Service) {
			s.Created, s.ExternalIPs = time.Unix(created, 0), tabletest.Addrs("192.0.2.1")
		}))
	}
	service("younger", "10.96.0.1", 200)
	service("older", "10.96.0.2", 100)
	refused := refusedService()
	table.SetService(refused)
	tabletest.SetEndpoint(table, refused.Name, tabletest.Endpoint("10.244.0.1"))
	tabletest.Sync(t, table)

	view, _ := table.Service(cluster.ServiceName{Namespace: "ns", Name: "younger"})
	var got []string
	for _, f := range view.Ports[0].Frontends {
		got = append(got, fmt.Sprintf("%s %s %d %s %s", f.Kind, f.Address, f.Port, f.State, f.Owner))
	}
	want := []string{"ClusterIP 10.96.0.1 80 NoEndpoints ", "ExternalIP 192.0.2.1 80 Conflict ns/older:http"}
	if !slices.Equal(got, want) {
		t.Errorf("got frontends %q, want %q", got, want)
	}
	view, _ = table.Service(refused.Name)
	port := view.Ports[0]
	if port.Refusal == "" || port.Plan == nil || len(port.Plan.Cluster) != 0 || len(port.Endpoints) != 1 {
		t.Errorf("got %+v, want a refused service port with an endpoint that is not served", port)
	}
	stats := table.Stats()
	if got := stats.RefusedPorts; len(got) != 1 || got[0].Name != refused.Name.WithPort("http") || got[0].Reason == "" {
		t.Errorf("got refused service ports %q", got)
	}
	if got := stats.WaitingPorts; len(got) != 1 || got[0].Name != "ns/younger:http" || got[0].Owner != "ns/older:http" {
		t.Errorf("got waiting service ports %v", got)
	}
	table.DeleteService(refused.Name)
	if _, ok := table.Service(refused.Name); ok {
		t.Error("got a view of a deleted Service")
	}
	for i := range maxListed + 1 {
		service(fmt.Sprint("more", i), "", 300)
	}
	tabletest.Sync(t, table)
	if stats := table.Stats(); stats.Contested != 1 || stats.WaitingPorts != nil || stats.RefusedPorts != nil {
		t.Errorf("got %d contested frontends, %d and %d listed, want 1, 0 and 0",
			stats.Contested, len(stats.WaitingPorts), len(stats.RefusedPorts))
	}
}

// A view of a refused service port has the numbers that it has when it is
// served with the same endpoints.
func TestViewOfRefused(t *testing.T) {
	svc := balanced(func(s *cluster.Service) { s.ExternalPolicy = cluster.PolicyLocal })
	table := newServed(t, sampleConfig(), svc)
	elsewhere := tabletest.Endpoint("10.244.1.1")
	elsewhere.Node = "node2"
	tabletest.SetEndpoint(table, svc.Name, elsewhere)
	tabletest.Sync(t, table)
	numbers := func() (all []string) {
		view, _ := table.Service(svc.Name)
		for _, f := range view.Ports[0].Frontends {
			all = append(all, fmt.Sprintf("%s: %d of %d", f.Kind, f.UsedEndpoints, f.AllEndpoints))
		}
		return all
	}
	want := []string{"ClusterIP: 2 of 2", "LoadBalancerIP: 1 of 2"}
	if got := numbers(); !slices.Equal(got, want) {
		t.Errorf("served: got %q, want %q", got, want)
	}
	answer(table, problem(unix.EINVAL, tagOf(table, svc.Name)))
	table.SetService(balanced(func(s *cluster.Service) {
		s.ExternalPolicy, s.ExternalIPs = cluster.PolicyLocal, tabletest.Addrs("192.0.2.9")
	}))
	tabletest.Sync(t, table)
	want = append(want, "ExternalIP: 0 of 2")
	if got := numbers(); !slices.Equal(got, want) {
		t.Errorf("refused: got %q, want %q", got, want)
	}
}
