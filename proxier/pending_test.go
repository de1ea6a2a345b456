package proxier

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
	"github.com/nftproxy/nftproxy/proxier/translate"
	"github.com/nftproxy/nftproxy/test/tabletest"
)

// takenState is a Sink that has what it was passed. A frontend belongs to the
// first Service that claims it, by name.
type takenState struct {
	services  map[cluster.ServiceName]*cluster.Service
	endpoints map[cluster.ServiceName]map[string][]*cluster.Endpoint
	delays    map[string]time.Duration
}

func newTakenState() *takenState {
	return &takenState{
		services:  make(map[cluster.ServiceName]*cluster.Service),
		endpoints: make(map[cluster.ServiceName]map[string][]*cluster.Endpoint),
		delays:    make(map[string]time.Duration),
	}
}

func (s *takenState) Setup() error                         { return nil }
func (s *takenState) Sync() error                          { return nil }
func (s *takenState) SetNode(*cluster.Node)                {}
func (s *takenState) SetService(svc *cluster.Service)      { s.services[svc.Name] = svc }
func (s *takenState) DeleteService(n cluster.ServiceName)  { delete(s.services, n) }
func (s *takenState) Delay(namespace string) time.Duration { return s.delays[namespace] }

func (s *takenState) SetEndpoints(n cluster.ServiceName, source string, all []*cluster.Endpoint) {
	if s.endpoints[n] == nil {
		s.endpoints[n] = make(map[string][]*cluster.Endpoint)
	}
	if s.endpoints[n][source] = all; len(all) == 0 {
		delete(s.endpoints[n], source)
	}
	if len(s.endpoints[n]) == 0 {
		delete(s.endpoints, n)
	}
}

func frontendsOf(svc *cluster.Service) (all []ruleset.Frontend) {
	for _, port := range svc.Ports {
		for _, f := range ruleset.FrontendsOf(nft.IPv4, svc, port) {
			all = append(all, f.Frontend)
		}
	}
	return all
}

// owners returns the owners of all frontends.
func (s *takenState) owners() map[ruleset.Frontend]cluster.ServiceName {
	all := make(map[ruleset.Frontend]cluster.ServiceName)
	for _, name := range slices.SortedFunc(maps.Keys(s.services), cluster.ServiceName.Compare) {
		for _, f := range frontendsOf(s.services[name]) {
			if _, owned := all[f]; !owned {
				all[f] = name
			}
		}
	}
	return all
}

func (s *takenState) Holder(f ruleset.Frontend) (cluster.ServiceName, bool) {
	name, ok := s.owners()[f]
	return name, ok
}

func (s *takenState) Held(name cluster.ServiceName) (all []ruleset.Frontend) {
	for f, owner := range s.owners() {
		if owner == name {
			all = append(all, f)
		}
	}
	return all
}

func (s *takenState) Awaited(f ruleset.Frontend) bool {
	claims := 0
	for _, svc := range s.services {
		if slices.Contains(frontendsOf(svc), f) {
			claims++
		}
	}
	return claims > 1
}

// take passes a part of the changes of a tracker.
func (s *takenState) take(t *tracker, limit int) (names []string, wait time.Duration, left bool) {
	c, wait, left := t.take(nft.IPv4, limit, s)
	c.passTo(s, func() *cluster.Node { return nil })
	for _, of := range c.services {
		names = append(names, of.name.String())
	}
	return names, wait, left
}

func listedTracker() *tracker {
	return newTracker(new(Config), newEventLog(nil), newMetrics(), nft.IPv4)
}

func setService(t *tracker, namespace, name, ip string, external ...string) {
	svc := tabletest.Service(name, ip, nil)
	svc.Name.Namespace, svc.ExternalIPs = namespace, tabletest.Addrs(external...)
	t.setService(&translate.Service{Name: svc.Name, Service: svc})
}

func deleteService(t *tracker, namespace, name string) {
	t.setService(&translate.Service{Name: cluster.ServiceName{Namespace: namespace, Name: name}})
}

func setSlice(t *tracker, name string, service cluster.ServiceName, ips ...string) {
	slice := &translate.EndpointSlice{
		Name: translate.SliceName{Namespace: "ns", Name: name}, Service: service, Family: nft.IPv4,
	}
	for _, ip := range ips {
		e := tabletest.Endpoint(ip)
		e.Source = name
		slice.Endpoints = append(slice.Endpoints, e)
	}
	t.setSlice(slice)
}

// A change does not wait for the many changes of another namespace. Those come
// in the order in which they were made.
func TestTakeInTurns(t *testing.T) {
	tr, state := listedTracker(), newTakenState()
	for i := range 5 {
		setService(tr, "many", fmt.Sprint(i), fmt.Sprint("10.0.0.", i))
	}
	setService(tr, "one", "web", "10.0.1.1")
	var parts []string
	for left := true; left; {
		var names []string
		names, _, left = state.take(tr, 2*serviceCost)
		parts = append(parts, fmt.Sprint(names))
	}
	if got, want := fmt.Sprint(parts), "[[many/0 one/web] [many/1 many/2] [many/3 many/4]]"; got != want {
		t.Errorf("got parts %s, want %s", got, want)
	}
}

// What has to be handed over together is in one part, although it is in
// namespaces that wait.
func TestTakeTogether(t *testing.T) {
	for _, tt := range []struct {
		name          string
		before, after func(*tracker)
	}{
		{"a slice that moves to another Service", func(tr *tracker) {
			setSlice(tr, "slice", cluster.ServiceName{Namespace: "a", Name: "a"}, "10.1.0.1")
		}, func(tr *tracker) {
			setSlice(tr, "slice", cluster.ServiceName{Namespace: "b", Name: "b"}, "10.1.0.1")
		}},
		{"a frontend whose owner was deleted", func(tr *tracker) {
			setService(tr, "a", "a", "10.0.0.1")
		}, func(tr *tracker) {
			deleteService(tr, "a", "a")
			setService(tr, "b", "b", "10.0.0.1")
		}},
		{"a frontend that is given up later", func(tr *tracker) {
			setService(tr, "b", "b", "10.0.0.1", "192.0.2.1")
		}, func(tr *tracker) {
			setService(tr, "a", "a", "10.0.0.2", "192.0.2.1")
			setService(tr, "b", "b", "10.0.0.1")
		}},
		{"a frontend that is claimed by the last version only", func(tr *tracker) {
			setService(tr, "a", "a", "10.0.0.1", "192.0.2.1")
		}, func(tr *tracker) {
			deleteService(tr, "a", "a")
			setService(tr, "b", "b", "10.0.0.2", "192.0.2.2")
			setService(tr, "b", "b", "10.0.0.2", "192.0.2.1")
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for _, delayed := range []string{"a", "b"} {
				tr, state := listedTracker(), newTakenState()
				tt.before(tr)
				state.take(tr, math.MaxInt)
				setService(tr, "x", "x", "10.0.9.9")
				tt.after(tr)
				state.delays[delayed] = time.Second
				names, wait, left := state.take(tr, 10*serviceCost)
				if len(names) != 3 || left || wait > 0 {
					t.Errorf("namespace %s waits: got %v, left %v", delayed, names, left)
				}
			}
		})
	}
}

// A Service that waits for a frontend does not wait for the turn of the
// namespace of its owner.
func TestTakeAwaited(t *testing.T) {
	for _, again := range []bool{false, true} {
		tr, state := listedTracker(), newTakenState()
		setService(tr, "a", "a", "10.0.0.1", "192.0.2.1")
		setService(tr, "b", "b", "10.0.0.2", "192.0.2.1")
		state.take(tr, math.MaxInt)
		state.delays["a"] = time.Second
		if again {
			setService(tr, "a", "a", "10.0.0.1", "192.0.2.1", "192.0.2.2")
			if names, _, _ := state.take(tr, partCost); len(names) > 0 {
				t.Errorf("got %v, want nothing", names)
			}
		}
		setService(tr, "a", "a", "10.0.0.1")
		if names, _, _ := state.take(tr, partCost); len(names) != 1 {
			t.Errorf("got %v, want a/a", names)
		}
	}
}

// The changes of a namespace that waits are collected, and handed over later.
func TestTakeDelayed(t *testing.T) {
	tr, state := listedTracker(), newTakenState()
	state.delays["slow"] = time.Minute
	setService(tr, "slow", "a", "10.0.0.1")
	setService(tr, "other", "b", "10.0.0.2")
	for _, want := range []string{"[other/b] 1m0s true", "[] 1m0s true"} {
		names, wait, left := state.take(tr, partCost)
		if got := fmt.Sprint(names, wait, left); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	delete(state.delays, "slow")
	names, wait, left := state.take(tr, partCost)
	if got, want := fmt.Sprint(names, wait, left), "[slow/a] 0s false"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// Whatever is taken in which parts, the table has the last state in the end.
// Until then it has whole Services, and never gives up a frontend that a change
// claims which it could have taken.
func TestRandomParts(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		tr, state := listedTracker(), newTakenState()
		for range 40 {
			for range r.IntN(8) {
				randomChange(r, tr)
			}
			clear(state.delays)
			for range r.IntN(3) {
				state.delays[fmt.Sprint("ns", r.IntN(3))] = time.Second
			}
			before := state.owners()
			names, _, _ := state.take(tr, 1+r.IntN(5*serviceCost))
			checkPart(t, tr, state, before)
			if t.Failed() {
				t.Fatalf("seed %d: after %v", seed, names)
			}
		}
		clear(state.delays)
		state.take(tr, math.MaxInt)
		p := tr.pending[nft.IPv4]
		if p.cost+p.services+p.slices+p.triggers+len(p.turns)+len(p.byName)+len(p.changes) > 0 {
			t.Fatalf("seed %d: something is left: %+v", seed, p)
		}
		want := newTakenState()
		for _, slice := range tr.slices {
			want.SetEndpoints(slice.Service, slice.Name.Name, slice.Endpoints)
		}
		if !reflect.DeepEqual(state.endpoints, want.endpoints) {
			t.Fatalf("seed %d: got endpoints %v, want %v", seed, state.endpoints, want.endpoints)
		}
	}
}

// randomChange changes a Service or an EndpointSlice.
func randomChange(r *rand.Rand, tr *tracker) {
	i := r.IntN(6)
	namespace, name := fmt.Sprint("ns", i%3), fmt.Sprint("svc", i)
	switch r.IntN(4) {
	case 0:
		deleteService(tr, namespace, name)
	case 1:
		var ips []string
		for range r.IntN(3) {
			ips = append(ips, netip.AddrFrom4([4]byte{10, 1, 0, byte(r.IntN(9))}).String())
		}
		setSlice(tr, fmt.Sprint("slice", r.IntN(4)), cluster.ServiceName{Namespace: namespace, Name: name},
			slices.Compact(slices.Sorted(slices.Values(ips)))...)
	default:
		setService(tr, namespace, name, fmt.Sprint("10.0.0.", i), fmt.Sprint("192.0.2.", r.IntN(3)))
	}
}

// checkPart checks the state after a part was taken.
func checkPart(t *testing.T, tr *tracker, state *takenState, before map[ruleset.Frontend]cluster.ServiceName) {
	t.Helper()
	p, now := tr.pending[nft.IPv4], state.owners()
	for f := range before {
		if _, owned := now[f]; owned {
			continue
		}
		for _, c := range p.changes {
			if c.set && c.spec != nil && slices.Contains(frontendsOf(c.spec), f) {
				t.Errorf("%s was given up, although a change of %s claims it", f, c.name)
			}
		}
	}
	for name, sources := range state.endpoints {
		for source, all := range sources {
			slice := tr.slices[translate.SliceName{Namespace: "ns", Name: source}]
			current := slice != nil && slice.Service == name && reflect.DeepEqual(slice.Endpoints, all)
			if !current && p.changes[name] == nil {
				t.Errorf("%s has former endpoints of %s, but no change", name, source)
			}
		}
	}
}
