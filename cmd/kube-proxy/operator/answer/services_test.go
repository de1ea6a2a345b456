package answer

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/table"
	"github.com/nftproxy/nftproxy/proxier/table/keep"
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

// If a family does not answer, the answers of the other one come before the
// error.
func TestOneFamilyAnswers(t *testing.T) {
	tabletest.NewNamespace(t)
	a, p := newAnswers(t, nft.IPv4, nft.IPv6)
	p.setUp(t)
	p.SetService(tabletest.Service("svc", "10.96.0.1", func(s *cluster.Service) {
		s.Families, s.ClusterIPs = []nft.Family{nft.IPv4, nft.IPv6}, tabletest.Addrs("10.96.0.1", "fd00:96::1")
	}))
	tabletest.Sync(t, p)
	p.busy = nft.IPv6
	want := func(what string, got []string, err error, wantGot ...string) {
		t.Helper()
		if !slices.Equal(got, wantGot) || !errors.Is(err, errBusy) || !strings.HasPrefix(err.Error(), "IPv6: ") {
			t.Errorf("%s: got %q, %v; want %q and errBusy of IPv6", what, got, err, wantGot)
		}
	}
	var frontends, steps []string
	err := a.services(t.Context(), cluster.ServiceName{}, func(s *table.ServiceView) error {
		for _, f := range s.Ports[0].Frontends {
			frontends = append(frontends, f.Address.String())
		}
		return nil
	})
	want("Services", frontends, err, "10.96.0.1")
	err = a.diff(t.Context(), "", func(s *keep.DiffStep) error {
		steps = append(steps, fmt.Sprint(s.Cursor, " ", len(s.Differences)))
		return nil
	})
	want("Diff", steps[:1], err, "IPv4: 0")
	q := packetTo("10.96.0.1:80")
	if d, err := one(t, a.explain, q); err != nil || d.ServicePort != "ns/svc:http" {
		t.Errorf("Explain of IPv4: got %+v, %v", d, err)
	}
	q.Destination = netip.MustParseAddrPort("[fd00:96::1]:80")
	_, err = one(t, a.explain, q)
	want("Explain", nil, err)
}

// While only one family has taken a change of a Service, the answer has the
// ports of both families.
func TestChangeInOneFamily(t *testing.T) {
	a, p := newAnswers(t, nft.IPv4, nft.IPv6)
	svc := tabletest.Service("svc", "10.96.0.1", func(s *cluster.Service) {
		s.Families = []nft.Family{nft.IPv4, nft.IPv6}
	})
	p.tables[0].SetService(svc)
	changed := *svc
	changed.Ports = append([]cluster.ServicePort{{Name: "new", Protocol: cluster.UDP, Port: 53}}, svc.Ports...)
	p.tables[1].SetService(&changed)
	var ports []string
	err := a.services(t.Context(), svc.Name, func(s *table.ServiceView) error {
		for _, p := range s.Ports {
			ports = append(ports, p.Name)
		}
		return nil
	})
	if want := []string{"http", "new"}; !slices.Equal(ports, want) || err != nil {
		t.Errorf("got ports %q, %v; want %q", ports, err, want)
	}
}
