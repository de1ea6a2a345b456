package answer

import (
	"errors"
	"slices"
	"testing"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/table"
	"github.com/nftproxy/nftproxy/proxier/table/tabletest"
)

// namesOf returns the names of the Services of a query.
func namesOf(t *testing.T, a *Answers, q cluster.ServiceName) []cluster.ServiceName {
	t.Helper()
	var names []cluster.ServiceName
	err := a.services(t.Context(), q, func(s *table.ServiceView) error {
		names = append(names, cluster.ServiceName{Namespace: s.Namespace, Name: s.Name})
		if q.Name == "" && s.Ports[0].Endpoints != nil {
			t.Errorf("%s/%s: a list of Services contains endpoints", s.Namespace, s.Name)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// Services are read in pages, and listed in the order of their names.
func TestServicesQuery(t *testing.T) {
	a, p := newAnswers(t, nft.IPv4, nft.IPv6)
	const services = 2*servicesPerQuery + 1
	for i := range services {
		svc := tabletest.NumberedService(i)
		svc.Name.Namespace = []string{"a", "b"}[i%2]
		p.SetService(svc)
	}
	names := namesOf(t, a, cluster.ServiceName{})
	sorted := slices.IsSortedFunc(names, cluster.ServiceName.Compare)
	if len(names) != services || !sorted {
		t.Errorf("got %d Services, sorted %v, want %d", len(names), sorted, services)
	}
	if names := namesOf(t, a, cluster.ServiceName{Namespace: "b"}); len(names) != services/2 {
		t.Errorf("got %d Services of namespace b, want %d", len(names), services/2)
	}
	if names := namesOf(t, a, cluster.ServiceName{Namespace: "c"}); len(names) != 0 {
		t.Errorf("got %d Services of namespace c, want none", len(names))
	}
	err := a.services(t.Context(), cluster.ServiceName{Namespace: "a", Name: "none"}, nil)
	if !errors.Is(err, ErrNoService) {
		t.Errorf("got error %v, want ErrNoService", err)
	}
	stop := errors.New("stop")
	if err := a.services(t.Context(), cluster.ServiceName{},
		func(*table.ServiceView) error { return stop }); err != stop {
		t.Errorf("got error %v of a callback, want the same", err)
	}
}

// A query reads fewer Services if they have many endpoints.
func TestServicesQueryEndpoints(t *testing.T) {
	a, p := newAnswers(t, nft.IPv4)
	const services = 5
	for i := range services {
		svc := tabletest.NumberedService(i)
		p.SetService(svc)
		for j := range endpointsPerQuery / 2 {
			tabletest.SetEndpoint(p, svc.Name, tabletest.NumberedEndpoint(0, j))
		}
	}
	if n := len(viewServices(p.tables[0], serviceNames(p.tables[0], cluster.ServiceName{}))); n != 2 {
		t.Errorf("got %d Services in one query, want 2", n)
	}
	if names := namesOf(t, a, cluster.ServiceName{}); len(names) != services {
		t.Errorf("got %d Services, want %d", len(names), services)
	}
}
