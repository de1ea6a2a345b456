package ejector

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/calm"
	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/eject"
	"github.com/nftproxy/nftproxy/proxier/table"
	"github.com/nftproxy/nftproxy/test/must"
	"github.com/nftproxy/nftproxy/test/tabletest"
)

// TestBusyTable passes an ejection to a table that is busy at first.
func TestBusyTable(t *testing.T) {
	var failure = errors.New("busy")
	asked := 0
	e := &Ejector{detector: ejected(), config: Config{
		Query: func(context.Context, nft.Family, func(*table.Table) error) error {
			asked++
			return failure
		},
	}}
	for _, want := range []int{1, 2, 3, 3} {
		if e.apply(t.Context()); asked != want {
			t.Errorf("table was asked %d times, want %d", asked, want)
		}
		if asked == 2 {
			failure = nil
		}
	}
}

// ejected returns a Detector that has just ejected an endpoint.
func ejected() *eject.Detector {
	d, now := eject.New(), time.Now()
	p := eject.Port{Family: nft.IPv4, PortName: cluster.ServiceName{Namespace: "ns", Name: "web"}.WithPort("")}
	dead, alive := netip.MustParseAddrPort("10.0.0.1:80"), netip.MustParseAddrPort("10.0.0.2:80")
	d.SetTargets(p, eject.Targets{Cluster: []netip.AddrPort{dead, alive}}, nil)
	for id := range uint32(2) {
		d.Tried(now, []eject.Try{{Endpoint: eject.Endpoint{Port: p, Addr: dead}, ID: id}})
	}
	for len(d.Changed()) == 0 {
		orders := d.Next(now)
		for _, e := range orders.Looks {
			d.Answers(now, e, []eject.Answer{{}}) // of the client that tries
		}
		for _, probe := range orders.Probes {
			d.Probed(now, probe, map[bool]eject.Result{true: eject.Answered, false: eject.Lost}[probe.Control])
		}
		now = now.Add(100 * time.Millisecond)
	}
	return d
}

// TestSampleOfFloods looks for attempts to endpoints that one client floods,
// and that many clients flood.
func TestSampleOfFloods(t *testing.T) {
	s, flooded, other := newSample(), netip.MustParseAddrPort("10.0.0.1:80"), netip.MustParseAddrPort("10.0.0.2:80")
	client := func(n int) netip.AddrPort {
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 9, byte(n >> 8), byte(n)}), 4000)
	}
	for port := range uint16(1000) {
		s.add(attempt{client: netip.AddrPortFrom(client(0).Addr(), port), endpoint: flooded, id: uint32(port)})
	}
	second := attempt{client: client(1), endpoint: flooded, id: 1}
	s.add(second)
	if _, found := s.attempts[second]; !found || len(s.attempts) != maxAttemptsBy+1 {
		t.Errorf("got %v, want %d attempts, one of %v", s.attempts, maxAttemptsBy+1, second.client)
	}
	for i := range 1000 {
		s.add(attempt{client: client(i), endpoint: flooded, id: uint32(i + 2000)})
	}
	want := attempt{client: client(1), endpoint: other, id: 1}
	s.add(want)
	if _, found := s.attempts[want]; !found || len(s.attempts) != maxAttemptsOf+1 {
		t.Errorf("got %d attempts, want %d, one of them to %v", len(s.attempts), maxAttemptsOf+1, other)
	}
}

// TestLasts has a node with other timeouts than the default ones.
func TestLasts(t *testing.T) {
	got := lasts(nft.TimeoutPolicy{6: 30, 2: 86400}) // time_wait, established
	want := map[string]time.Duration{
		"FIN_WAIT": 2 * time.Minute, "LAST_ACK": 30 * time.Second, "TIME_WAIT": 30 * time.Second,
		"CLOSE": 10 * time.Second,
	}
	if !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// TestRestedAfter takes looks as soon as they are allowed: many at once, and on
// average as many as walks.
func TestRestedAfter(t *testing.T) {
	var at time.Time
	start := time.Now()
	now, looks := start, 0
	const took, lasts, atOnce = 10 * time.Millisecond, 10 * time.Minute, 30
	for now.Sub(start) < lasts {
		if now.Before(at) {
			now = at
		}
		at = restedAfter(at, now, took)
		if looks++; looks == atOnce && now != start {
			t.Errorf("look %d waits %v, want no wait", looks, now.Sub(start))
		}
	}
	if want := int((lasts + credit) / (took * walkShare)); looks < want-1 || looks > want+1 {
		t.Errorf("%d looks, want %d", looks, want)
	}
}

// TestBlindNames has service ports of both families, and too many of them.
func TestBlindNames(t *testing.T) {
	var ports []eject.Port
	for i := range maxBlind + 1 {
		for _, f := range []nft.Family{nft.IPv4, nft.IPv6} {
			name := cluster.ServiceName{Namespace: "ns", Name: fmt.Sprintf("web%03d", i)}
			ports = append(ports, eject.Port{Family: f, PortName: name.WithPort("http")})
		}
	}
	e := &Ejector{}
	if got := e.Blind(); len(got) != 0 {
		t.Errorf("at first: %v", got)
	}
	e.blind.set(ports)
	if got := e.Blind(); len(got) != maxBlind || got[0] != "ns/web000:http" || got[1] != "ns/web001:http" {
		t.Errorf("%d names: %v", len(got), got)
	}
}

// TestRefresh asks the tables for the endpoints of service ports while walks
// are rare.
func TestRefresh(t *testing.T) {
	asked := 0
	e := &Ejector{detector: ejected(), targets: make(map[eject.Port]targets), config: Config{
		Families: []nft.Family{nft.IPv4, nft.IPv6},
		Query: func(context.Context, nft.Family, func(*table.Table) error) error {
			asked++
			return nil
		},
	}}
	for _, age := range []time.Duration{0, refreshPeriod, time.Second} {
		e.asked = time.Now().Add(-age)
		e.refresh(t.Context())
	}
	if asked != 1 { // the Detector knows no service port of IPv6
		t.Errorf("tables were asked %d times, want once", asked)
	}
}

// TestSignsOfLife finds attempts without an answer in calm. Only those to
// connect to endpoints of service ports make walks as frequent as before.
func TestSignsOfLife(t *testing.T) {
	tables, err := table.New(table.Config{Rules: tabletest.Rules()}, nft.IPv4)
	must.NoError(t, err)
	svc, endpoint := tabletest.Service("web", "10.96.0.10", nil), tabletest.Endpoint("10.244.1.5")
	tables[0].SetService(svc)
	tabletest.SetEndpoint(tables[0], svc.Name, endpoint)
	now := time.Now()
	e := &Ejector{
		detector: eject.New(), targets: make(map[eject.Port]targets), began: now, period: minPeriod,
		config: Config{
			Families: []nft.Family{nft.IPv4}, Calm: calm.New(now.Add(-2 * calm.Delay)),
			Query: func(_ context.Context, _ nft.Family, ask func(*table.Table) error) error { return ask(tables[0]) },
		},
	}
	disturbed := e.config.Calm.Disturbed()
	for _, step := range []struct {
		frontend string
		alert    bool
	}{{"", false}, {"192.0.2.1:80", false}, {"10.96.0.10:80", true}} {
		var aged []attempt
		if step.frontend != "" {
			to := netip.AddrPortFrom(endpoint.Addr, 8080)
			aged = []attempt{{frontend: netip.MustParseAddrPort(step.frontend), endpoint: to}}
		}
		e.resolve(t.Context(), aged)
		e.walkSooner(now)
		if got := len(disturbed) > 0; got != step.alert || e.walkAt.Equal(now.Add(minPeriod)) != step.alert {
			t.Errorf("attempt to %q: alert is %v, the next walk is after %s", step.frontend, got, e.walkAt.Sub(now))
		}
	}
	later := now.Add(time.Hour)
	e.walkAt, e.rested = later, later
	if e.walkSooner(now); e.walkAt != later {
		t.Error("a walk does not wait for CPU time")
	}
	e.rested, e.first = time.Time{}, make(map[attempt]struct{})
	if e.walkSooner(now); e.walkAt != later {
		t.Error("a second look was moved")
	}
}

// TestNextWalk has walks that take more or less CPU time, in calm.
func TestNextWalk(t *testing.T) {
	start := time.Now()
	began := start.Add(2 * calm.Delay)
	for period, want := range map[time.Duration]time.Duration{
		minPeriod: minCalmPeriod, 2500 * time.Millisecond: 7500 * time.Millisecond, time.Minute: maxPeriod,
	} {
		e := &Ejector{began: began, period: period, config: Config{Calm: calm.New(start)}}
		if got := e.nextWalk(began).Sub(began); got != want {
			t.Errorf("period %s: the next walk is after %s, want %s", period, got, want)
		}
		e.config.Calm.Disturb(began)
		if got := e.nextWalk(began).Sub(began); got != period {
			t.Errorf("period %s: the next walk is after %s while the node is alert", period, got)
		}
	}
}
