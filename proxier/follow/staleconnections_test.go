package follow

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/nftproxy/nftproxy/conntrack"
	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/metric"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
	"github.com/nftproxy/nftproxy/proxier/table"
	"github.com/nftproxy/nftproxy/proxier/translate"
)

// removals is a flowCleaner that records removals.
type removals struct {
	flowCleaner // nil

	mu   sync.Mutex
	got  []string
	hold bool // whether removals are not done
	held []conntrack.Removal
}

func (r *removals) record(call string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.got = append(r.got, call)
}

func (r *removals) Remove(all ...conntrack.Removal) {
	for _, one := range all {
		if r.hold {
			r.held = append(r.held, one)
			continue
		}
		var served []string
		for _, frontend := range []string{"10.96.0.1:80", "10.96.0.2:80"} {
			if one.Serves(netip.MustParseAddrPort(frontend)) {
				served = append(served, frontend)
			}
		}
		r.record(fmt.Sprintf("%d %s %v", one.Protocol, one.Endpoint, served))
		one.Done(0)
	}
}

func (r *removals) Run(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

func (*removals) SetNodeAddrs(nft.Family, []netip.Addr) {}

// staleLab has EndpointSlices and staleConnections, and no kernel.
type staleLab struct {
	*staleConnections
	removals
	slices map[translate.SliceName]*translate.EndpointSlice
}

// inStaleLab runs a test with a fake clock. The kernel has the service ports
// default/web:http and default/api:http, with targets.
func inStaleLab(t *testing.T, test func(*staleLab)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		config := &Config{Metrics: metric.NewSet(nft.IPv4)}
		l := &staleLab{
			staleConnections: newStaleConnections(config, nil, make(map[nft.Family]*localhostPorts)),
			slices:           make(map[translate.SliceName]*translate.EndpointSlice),
		}
		l.cleaner = &l.removals
		l.commit("web")
		l.commit("api")
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			l.staleConnections.run(ctx)
		}()
		test(l)
		cancel()
		<-done
	})
}

// commit commits a Service with endpoints for new connections, all on port
// 8080. Without a frontend, it commits that the Service is gone.
func (l *staleLab) commit(name string, endpoints ...string) {
	l.committed(&table.Commit{Family: nft.IPv4, Changes: []table.PortChange{{After: stalePlan(name, endpoints...)}}})
}

func stalePlan(name string, endpoints ...string) *ruleset.Plan {
	frontend := map[string]string{"web": "10.96.0.1", "api": "10.96.0.2"}[name]
	port := cluster.ServicePort{Name: "http", Protocol: cluster.TCP, Port: 80}
	p := &ruleset.Plan{
		Service: &cluster.Service{Name: cluster.ServiceName{Namespace: "default", Name: name}}, Port: port,
		Frontends: []ruleset.ServedFrontend{{
			Frontend: ruleset.Frontend{Addr: netip.MustParseAddr(frontend), Port: 80, Proto: cluster.TCP},
		}},
	}
	for _, e := range endpoints {
		p.Cluster = append(p.Cluster, ruleset.Target{Addr: netip.MustParseAddr(e), Port: 8080})
	}
	return p
}

// States of endpoints, as the API server shows them.
var (
	isReady       = cluster.Endpoint{Ready: true, Serving: true}
	isDraining    = cluster.Endpoint{Serving: true, Terminating: true}
	isTerminating = cluster.Endpoint{Terminating: true}
	isNotReady    = cluster.Endpoint{}
	isPublished   = cluster.Endpoint{Ready: true, Serving: true, Terminating: true} // publishNotReadyAddresses
)

// slice sets an EndpointSlice with the endpoints 10.244.0.1, .2 and so on. A
// nil state leaves an endpoint out.
func (l *staleLab) slice(name, service string, states ...*cluster.Endpoint) {
	l.sliceOf("default", name, service, states...)
}

func (l *staleLab) sliceOf(namespace, name, service string, states ...*cluster.Endpoint) {
	s := &translate.EndpointSlice{
		Name:    translate.SliceName{Namespace: namespace, Name: name},
		Service: cluster.ServiceName{Namespace: namespace, Name: service}, Family: nft.IPv4,
	}
	for i, state := range states {
		if state != nil {
			e := *state
			e.EndpointKey = cluster.EndpointKey{Source: name, Addr: netip.AddrFrom4([4]byte{10, 244, 0, byte(1 + i)})}
			e.Ports = []cluster.EndpointPort{
				{Name: "dns", Protocol: cluster.UDP, Port: 53}, {Name: "http", Protocol: cluster.TCP, Port: 8080},
			}
			s.Endpoints = append(s.Endpoints, &e)
		}
	}
	l.setSlice(s)
}

// setSlice replaces a slice, as the tracker of a Proxier does.
func (l *staleLab) setSlice(s *translate.EndpointSlice) {
	before, now := l.slices[s.Name], s
	if len(s.Endpoints) == 0 {
		now = nil
	}
	l.missing.replaced(before, now)
	l.slices[s.Name] = now
}

func (l *staleLab) delete(name string) {
	l.slice(name, "")
}

// pass waits until all goroutines have done their work of a duration.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func (l *staleLab) wantNoneMissing(t *testing.T) {
	t.Helper()
	if len(l.missing.addrs) != 0 || l.missing.limit.Left() != maxMissing {
		t.Errorf("%d addresses with %d ports are still missing",
			len(l.missing.addrs), maxMissing-l.missing.limit.Left())
	}
}

// Connections to an endpoint are reset half a second after it left all
// EndpointSlices, if its pod has probably ended.
func TestStaleConnections(t *testing.T) {
	const web1, web2, api1 = "6 10.244.0.1:8080 [10.96.0.1:80]", "6 10.244.0.2:8080 [10.96.0.1:80]",
		"6 10.244.0.1:8080 [10.96.0.2:80]"
	for name, tc := range map[string]struct {
		change func(*staleLab)
		want   []string
	}{
		"terminating": {func(l *staleLab) {
			l.slice("a", "web", &isTerminating, &isReady)
			l.slice("a", "web", nil, &isReady)
		}, []string{web1}},
		"terminating and serving": {func(l *staleLab) {
			l.slice("a", "web", &isReady, &isDraining)
			l.slice("a", "web", &isReady)
		}, []string{web2}},
		"terminating, with publishNotReadyAddresses": {func(l *staleLab) {
			l.slice("a", "web", &isPublished)
			l.slice("a", "web")
		}, []string{web1}},
		"not ready": {func(l *staleLab) {
			l.slice("a", "web", &isNotReady, &isReady)
			l.slice("a", "web", nil, &isReady)
		}, []string{web1}},
		"slice deleted": {func(l *staleLab) {
			l.slice("a", "web", &isTerminating)
			l.delete("a")
		}, []string{web1}},
		"of two Services": {func(l *staleLab) {
			l.slice("a", "web", &isTerminating)
			l.slice("b", "api", &isTerminating)
			l.delete("a")
			time.Sleep(time.Second)
			l.delete("b")
		}, []string{web1, api1}},
		"ready: selector switched, label removed": {func(l *staleLab) {
			l.slice("a", "web", &isReady, &isReady)
			l.slice("a", "web", nil, &isReady)
		}, nil},
		"ready: all slices deleted, Service deleted, API server drains": {func(l *staleLab) {
			l.slice("a", "web", &isReady, &isReady)
			l.delete("a")
		}, nil},
		"ready: Service recreated": {func(l *staleLab) {
			l.slice("a", "web", &isReady)
			l.delete("a")
			l.slice("b", "web", &isReady)
		}, nil},
		"terminating: Service deleted": {func(l *staleLab) {
			l.slice("a", "web", &isTerminating)
			l.delete("a")
			l.committed(&table.Commit{Family: nft.IPv4, Changes: []table.PortChange{{Before: stalePlan("web")}}})
		}, nil},
		"terminating: moved to another slice": {func(l *staleLab) {
			l.slice("a", "web", &isTerminating)
			l.delete("a")
			time.Sleep(missingDelay - time.Millisecond)
			l.slice("b", "web", &isTerminating)
		}, nil},
		"terminating: in another slice first": {func(l *staleLab) {
			l.slice("a", "web", &isTerminating)
			l.slice("b", "web", &isTerminating)
			l.delete("a")
		}, nil},
		"terminating: left and returned for a moment": {func(l *staleLab) {
			l.slice("a", "web", &isTerminating)
			l.delete("a")
			time.Sleep(missingDelay / 2)
			l.slice("a", "web", &isTerminating)
			l.slice("a", "web")
			time.Sleep(missingDelay - time.Millisecond)
			l.slice("a", "web", &isReady)
		}, nil},
		"terminating: other slice had it as ready": {func(l *staleLab) {
			l.slice("a", "web", &isTerminating)
			l.slice("b", "web", &isReady)
			l.delete("a")
			l.delete("b")
		}, nil},
		"terminating: another Service still has it": {func(l *staleLab) {
			l.slice("a", "web", &isTerminating)
			l.slice("b", "api", &isTerminating)
			l.delete("a")
		}, nil},
		"another Service removes it by hand": {func(l *staleLab) { // a tenant names the pod of another one
			l.slice("a", "web", &isReady)
			l.slice("b", "api", &isTerminating)
			l.delete("b")
		}, nil},
		"ports edited by hand": {func(l *staleLab) {
			l.slice("a", "web", &isTerminating)
			edited := *l.slices[translate.SliceName{Namespace: "default", Name: "a"}]
			e := *edited.Endpoints[0]
			e.Ports = []cluster.EndpointPort{{Name: "http", Protocol: cluster.TCP, Port: 9090}}
			edited.Endpoints = []*cluster.Endpoint{&e}
			l.setSlice(&edited)
		}, nil},
		"slice given to another Service": {func(l *staleLab) {
			l.slice("a", "web", &isTerminating)
			l.slice("a", "api", &isTerminating)
		}, nil},
		"gone before the start": {func(l *staleLab) {
			l.slice("a", "web", &isReady)
		}, nil},
		"not yet half a second": {func(l *staleLab) {
			l.slice("a", "web", &isTerminating)
			l.delete("a")
			time.Sleep(missingDelay - time.Millisecond)
			l.record("now")
		}, []string{"now", web1}},
		"the kernel still has the endpoint": {func(l *staleLab) {
			l.commit("web", "10.244.0.1")
			l.slice("a", "web", &isTerminating)
			l.delete("a")
			time.Sleep(5 * time.Second)
			l.record("now")
			l.commit("web")
		}, []string{"now", web1}},
	} {
		t.Run(name, func(t *testing.T) {
			inStaleLab(t, func(l *staleLab) {
				tc.change(l)
				pass(time.Minute)
				slices.Sort(l.got)
				slices.Sort(tc.want)
				if !slices.Equal(l.got, tc.want) {
					t.Errorf("got %q, want %q", l.got, tc.want)
				}
				l.wantNoneMissing(t)
			})
		})
	}
}

// If an endpoint returns while its connections are being reset, further ones
// stay.
func TestStaleConnectionsReturned(t *testing.T) {
	inStaleLab(t, func(l *staleLab) {
		l.hold = true
		l.slice("a", "web", &isTerminating)
		l.delete("a")
		pass(time.Second)
		frontend := netip.MustParseAddrPort("10.96.0.1:80")
		if len(l.held) != 1 || !l.held[0].Serves(frontend) {
			t.Fatalf("got %d removals, want one that serves %v", len(l.held), frontend)
		}
		l.slice("a", "web", &isReady)
		if l.held[0].Serves(frontend) {
			t.Error("the endpoint is back, but its connections are reset")
		}
		l.held[0].Done(0)
		l.wantNoneMissing(t)
	})
}

// The number of endpoints that are gone is limited, until their connections are
// reset. Further ones are ignored, however often they come and go.
func TestStaleConnectionsLimit(t *testing.T) {
	inStaleLab(t, func(l *staleLab) {
		const size, flaps = 250, 100
		l.hold = true
		for range flaps {
			var states []*cluster.Endpoint
			for range size {
				states = append(states, &isTerminating)
			}
			l.slice("a", "web", states...)
			l.delete("a")
			pass(time.Second)
		}
		const want = maxMissing / 2 // of a namespace alone
		if missing := maxMissing - l.missing.limit.Left(); len(l.held) != want || missing != want {
			t.Errorf("got %d removals, %d ports, want %d", len(l.held), missing, want)
		}
		ignored := testutil.ToFloat64(l.missing.ignored)
		if want := float64(2 * (size*flaps - want)); ignored != want {
			t.Errorf("got %v endpoints ignored, want %v", ignored, want)
		}
		for _, r := range l.held {
			r.Done(0)
		}
		l.wantNoneMissing(t)
		l.hold = false
		l.slice("a", "web", &isTerminating)
		l.delete("a")
		pass(time.Second)
		if len(l.got) != 1 {
			t.Errorf("after the reset of all: got %q, want one removal", l.got)
		}
	})
}

// While a namespace has more endpoints that are gone than its share, the
// connections of other namespaces are reset.
func TestStaleConnectionsShare(t *testing.T) {
	inStaleLab(t, func(l *staleLab) {
		plan := stalePlan("web")
		plan.Service = &cluster.Service{Name: cluster.ServiceName{Namespace: "other", Name: "web"}}
		l.committed(&table.Commit{Family: nft.IPv4, Changes: []table.PortChange{{After: plan}}})
		l.hold = true
		states := slices.Repeat([]*cluster.Endpoint{&isTerminating}, 250)
		for testutil.ToFloat64(l.missing.ignored) == 0 {
			l.slice("a", "web", states...)
			l.delete("a")
			pass(time.Second)
		}
		filled := len(l.held)
		l.sliceOf("other", "b", "web", states...)
		l.sliceOf("other", "b", "")
		pass(time.Second)
		if got := len(l.held) - filled; got != len(states) {
			t.Errorf("got %d removals of another namespace, want %d", got, len(states))
		}
	})
}

// A Service is not in the way of others: connections to an endpoint wait until
// no port of its Services has a rule that leads to it.
func TestStaleConnectionsOfPorts(t *testing.T) {
	inStaleLab(t, func(l *staleLab) {
		l.slice("a", "web", &isTerminating, &isTerminating)
		l.slice("b", "api", &isTerminating)
		l.commit("api", "10.244.0.1")
		l.delete("a")
		l.delete("b")
		pass(5 * time.Second)
		if want := []string{"6 10.244.0.2:8080 [10.96.0.1:80]"}; !slices.Equal(l.got, want) {
			t.Errorf("got %q, want %q", l.got, want)
		}
		l.commit("api")
		pass(time.Second)
		if len(l.got) != 3 {
			t.Errorf("got %q, want the other endpoint of both Services", l.got)
		}
		l.wantNoneMissing(t)
	})
}

// resetServer is a localhostServer that counts resets.
type resetServer struct {
	localhostServer // nil
	resets          int
}

func (s *resetServer) Reset(uint16, netip.AddrPort) int {
	s.resets++
	return 1
}

// NodePorts on localhost reset their connections once, when no port of the
// Services has a rule that leads to the endpoint.
func TestStaleConnectionsOfLocalhost(t *testing.T) {
	inStaleLab(t, func(l *staleLab) {
		server := &resetServer{}
		l.localhost[nft.IPv4] = &localhostPorts{server: server}
		web := stalePlan("web")
		web.Frontends = append(web.Frontends, ruleset.ServedFrontend{
			Frontend: ruleset.Frontend{Port: 30080, Proto: cluster.TCP}, Kind: ruleset.NodePort,
		})
		l.committed(&table.Commit{Family: nft.IPv4, Changes: []table.PortChange{{After: web}}})
		l.commit("api", "10.244.0.1")
		l.slice("a", "web", &isTerminating)
		l.slice("b", "api", &isTerminating)
		l.delete("a")
		l.delete("b")
		pass(5 * time.Second)
		if server.resets != 0 {
			t.Errorf("got %d resets while a rule leads to the endpoint, want none", server.resets)
		}
		l.commit("api")
		pass(time.Second)
		if server.resets != 1 {
			t.Errorf("got %d resets, want 1", server.resets)
		}
	})
}
