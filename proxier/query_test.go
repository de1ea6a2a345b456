package proxier

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/nftproxy/nftproxy/cmd/kube-proxy/operator/socket"
	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/table/tabletest"
)

var _ socket.Proxy = (*Proxier)(nil)

// answering calls f while queries are answered, without syncs.
func answering(t *testing.T, p *Proxier, f func(context.Context)) {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	for _, family := range p.families {
		go func() {
			for {
				select {
				case <-ctx.Done():
					return
				case query := <-family.queries:
					query()
				}
			}
		}()
	}
	f(ctx)
}

// servicesOf returns all Services with their endpoints as YAML.
func servicesOf(t *testing.T, p *Proxier) (text string) {
	t.Helper()
	answering(t, p, func(ctx context.Context) {
		for _, name := range serviceNames(ctx, t, p, socket.ServiceQuery{}) {
			q := socket.ServiceQuery{Namespace: name.Namespace, Name: name.Name}
			err := p.Services(ctx, q, func(s *socket.Service) error {
				out, err := yaml.Marshal(s)
				text += "---\n" + string(out)
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
		}
	})
	return text
}

// serviceNames returns the names of the Services of a query.
func serviceNames(ctx context.Context, t *testing.T, p *Proxier, q socket.ServiceQuery) []socket.ServiceQuery {
	t.Helper()
	var names []socket.ServiceQuery
	err := p.Services(ctx, q, func(s *socket.Service) error {
		names = append(names, socket.ServiceQuery{Namespace: s.Namespace, Name: s.Name})
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
	p, err := assemble(sampleConfig(), nft.IPv4, nft.IPv6)
	if err != nil {
		t.Fatal(err)
	}
	const services = 2*servicesPerQuery + 1
	for i := range services {
		svc := tabletest.NumberedService(i)
		svc.Name.Namespace = []string{"a", "b"}[i%2]
		p.sink.SetService(svc)
	}
	answering(t, p, func(ctx context.Context) {
		names := serviceNames(ctx, t, p, socket.ServiceQuery{})
		sorted := slices.IsSortedFunc(names, func(a, b socket.ServiceQuery) int {
			if a.Namespace != b.Namespace {
				return strings.Compare(a.Namespace, b.Namespace)
			}
			return strings.Compare(a.Name, b.Name)
		})
		if len(names) != services || !sorted {
			t.Errorf("got %d Services, sorted %v, want %d", len(names), sorted, services)
		}
		if names := serviceNames(ctx, t, p, socket.ServiceQuery{Namespace: "b"}); len(names) != services/2 {
			t.Errorf("got %d Services of namespace b, want %d", len(names), services/2)
		}
		if names := serviceNames(ctx, t, p, socket.ServiceQuery{Namespace: "c"}); len(names) != 0 {
			t.Errorf("got %d Services of namespace c, want none", len(names))
		}
		err := p.Services(ctx, socket.ServiceQuery{Namespace: "a", Name: "none"}, nil)
		if !errors.Is(err, socket.ErrNoService) {
			t.Errorf("got error %v, want ErrNoService", err)
		}
		stop := errors.New("stop")
		if err := p.Services(ctx, socket.ServiceQuery{}, func(*socket.Service) error { return stop }); err != stop {
			t.Errorf("got error %v of a callback, want the same", err)
		}
	})
}

// A query reads fewer Services if they have many endpoints.
func TestServicesQueryEndpoints(t *testing.T) {
	p, err := assemble(sampleConfig(), nft.IPv4)
	if err != nil {
		t.Fatal(err)
	}
	const services = 5
	for i := range services {
		svc := tabletest.NumberedService(i)
		p.sink.SetService(svc)
		for j := range endpointsPerQuery / 2 {
			p.sink.SetEndpoint(svc.Name, tabletest.NumberedEndpoint(0, j))
		}
	}
	f := p.families[0]
	if n := len(f.viewServices(f.serviceNames(socket.ServiceQuery{}))); n != 2 {
		t.Errorf("got %d Services in one query, want 2", n)
	}
	answering(t, p, func(ctx context.Context) {
		if names := serviceNames(ctx, t, p, socket.ServiceQuery{}); len(names) != services {
			t.Errorf("got %d Services, want %d", len(names), services)
		}
	})
}

// While a sync hangs, Status answers, and other queries end with their context.
// After the sync they are answered.
func TestQueriesDuringSync(t *testing.T) {
	tabletest.NewNamespace(t)
	began, proceed := make(chan struct{}, 100), make(chan struct{})
	config := sampleConfig()
	config.open = openWith(func(_ *nft.Batch, commit func() error) error {
		began <- struct{}{}
		<-proceed
		return commit()
	})
	p := newTestProxier(t, config, nft.IPv4)
	p.OnServiceAdd(&corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"},
		Spec:       corev1.ServiceSpec{ClusterIP: "10.96.0.1", Ports: []corev1.ServicePort{{Port: 80}}},
	})
	if s := p.Status(); s.Listed || s.Node != "node1" || len(s.Families) != 1 || s.Families[0].LastSync != nil {
		t.Errorf("before the first sync: got %+v", s)
	}
	p.OnServiceSynced()
	p.OnEndpointSlicesSynced()
	startLoop(t, p)
	<-began
	if s := p.Status(); !s.Listed || s.Families[0].WaitingSince.IsZero() || !s.Families[0].Synced.IsZero() {
		t.Errorf("during the first sync: got %+v", s)
	}
	short, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	err := p.Services(short, socket.ServiceQuery{}, nil)
	if !errors.Is(err, errBusy) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got error %v, want errBusy and DeadlineExceeded", err)
	}
	close(proceed)
	<-p.Synced()
	if names := serviceNames(t.Context(), t, p, socket.ServiceQuery{}); fmt.Sprint(names) != "[{default web}]" {
		t.Errorf("got Services %v", names)
	}
	s := p.Status().Families[0]
	if !s.Healthy || s.Services != 1 || s.ServicePorts != 1 || s.Rows["no-endpoint-services"] != 1 ||
		s.LastSync == nil || s.LastSync.Cause != "first sync" || !s.LastSync.Whole || s.Rewrites != 1 {
		t.Errorf("after the first sync: got %+v", s)
	}
}

// The status names the cause of the last sync, its error, and the repairs.
func TestStatusOfSyncs(t *testing.T) {
	tabletest.NewNamespace(t)
	fail := false
	config := sampleConfig()
	config.open = openWith(func(_ *nft.Batch, commit func() error) error {
		if fail {
			return tabletest.ErrCommit
		}
		return commit()
	})
	p := newTestProxier(t, config, nft.IPv4)
	tabletest.PassSample(p.sink)
	loop := &syncLoop{family: p.families[0]}
	p.tracker.servicesSynced, p.tracker.slicesSynced = true, true
	step := func(want string, whole bool) *socket.FamilyStatus {
		t.Helper()
		s := &p.Status().Families[0]
		if s.LastSync == nil || s.LastSync.Cause != want || s.LastSync.Whole != whole {
			t.Errorf("got sync %+v, want one because of %s", s.LastSync, want)
		}
		return s
	}
	loop.attempt("Sync", loop.sync)
	step("first sync", true)
	p.sink.SetService(tabletest.Service("new", "10.96.0.77", nil))
	loop.attempt("Sync", loop.sync)
	step("changes", false)
	loop.attempt("Resync", loop.resync)
	step("periodic", false)
	tabletest.NFT(t, "", "flush", "map", "ip", "kube-proxy", "service-ips")
	loop.check()
	publish(p)
	if s := step(p.families[0].lastSync.Load().Cause, true); s.Repairs["rows"] != 1 {
		t.Errorf("got repairs %v, want one of rows", s.Repairs)
	}
	fail = true
	p.sink.SetService(tabletest.Service("new", "10.96.0.78", nil))
	loop.attempt("Sync", loop.sync)
	if s := step("changes", false); s.LastSync.Error == "" {
		t.Error("got no error of a sync that failed")
	}
}
