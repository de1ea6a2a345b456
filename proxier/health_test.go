package proxier

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"github.com/nftproxy/nftproxy/healthcheck"
	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
	"github.com/nftproxy/nftproxy/proxier/table"
	"github.com/nftproxy/nftproxy/proxier/table/tabletest"
)

// healthCalls records the calls of a server of health-check NodePorts.
type healthCalls []string

func (h *healthCalls) SetService(s healthcheck.Service) {
	*h = append(*h, fmt.Sprintf("set %s/%s port %d: %d", s.Namespace, s.Name, s.Port, s.LocalEndpoints))
}
func (h *healthCalls) DeleteService(ns, name string) { *h = append(*h, "delete "+ns+"/"+name) }
func (h *healthCalls) Run(context.Context) error     { return nil }
func (h *healthCalls) SetAddrs(addrs []netip.Addr)   { *h = append(*h, fmt.Sprint("listen on ", addrs)) }

func TestHealthCheckNodePorts(t *testing.T) {
	tabletest.NewNamespace(t)
	p := newTestProxier(t, Config{NodeName: "node1"}, nft.IPv4)
	var got healthCalls
	p.families[0].checks.server = &got
	b := p.sink
	step := func(what string, want ...string) {
		t.Helper()
		got = nil
		tabletest.Sync(t, b)
		if !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", what, got, want)
		}
	}
	name := cluster.ServiceName{Namespace: "ns", Name: "lb"}
	step("no address of the node known", "listen on [0.0.0.0]")
	b.SetNode(tabletest.Node())
	step("the node's address", "listen on [172.30.0.11]")
	b.SetService(tabletest.Service("lb", "10.96.0.1", func(s *cluster.Service) { s.HealthCheckNodePort = 32000 }))
	b.SetEndpoint(name, tabletest.Endpoint("10.244.0.1"))
	elsewhere := tabletest.Endpoint("10.244.0.2")
	elsewhere.Node = "node2"
	b.SetEndpoint(name, elsewhere)
	ending := tabletest.Endpoint("10.244.0.3")
	ending.Ready = false
	b.SetEndpoint(name, ending)
	step("ready endpoints of this node count", "set ns/lb port 32000: 1")
	b.DeleteEndpoint(name, tabletest.Endpoint("10.244.0.1").EndpointKey)
	step("no endpoint of this node", "set ns/lb port 32000: 0")
	b.SetService(tabletest.Service("lb", "10.96.0.1", nil))
	step("no health-check NodePort", "delete ns/lb")
	b.SetService(tabletest.Service("lb", "10.96.0.1", func(s *cluster.Service) { s.HealthCheckNodePort = 32000 }))
	step("again", "set ns/lb port 32000: 0")
	b.DeleteService(name)
	step("no service", "delete ns/lb")
}

// Where NodePorts listen on no address, health checks listen on none, and not on all. Addresses are told before Services.
func TestHealthChecksOnNoAddress(t *testing.T) {
	tabletest.NewNamespace(t)
	p := newTestProxier(t, Config{
		NodeName: "node1", NodePortAddresses: ruleset.NodePortAddresses{CIDRs: tabletest.Prefixes("203.0.113.0/24")},
	}, nft.IPv4)
	var got healthCalls
	p.families[0].checks.server = &got
	b := p.sink
	b.SetNode(tabletest.Node())
	b.SetService(tabletest.Service("lb", "10.96.0.1", func(s *cluster.Service) { s.HealthCheckNodePort = 32000 }))
	tabletest.Sync(t, b)
	if want := []string{"set ns/lb port 32000: 0"}; !slices.Equal(got, want) { // no other addresses than at the start
		t.Errorf("%q, want %q", got, want)
	}
}

// familiesForTest watches families whose backends say what is in the map that it returns.
func familiesForTest(h *health, families ...nft.Family) (upToDate map[nft.Family]bool) {
	upToDate = make(map[nft.Family]bool)
	for _, f := range families {
		h.watch(f, func() bool { return upToDate[f] })
	}
	return upToDate
}

func TestHealth(t *testing.T) {
	h := &health{patience: time.Hour}
	if h.ok() {
		t.Error("healthy without any family")
	}
	familiesForTest(h, nft.IPv4)
	failing := errors.New("failing")
	fail, succeed := func() error { return failing }, func() error { return nil }
	want := func(what string, ok bool) {
		t.Helper()
		if h.ok() != ok {
			t.Errorf("%s: healthy is %v", what, !ok)
		}
	}
	want("before the first sync", false)
	if !h.state()[0].Healthy {
		t.Error("late before the first sync")
	}
	h.changed()
	if err := h.during(fail); err != failing {
		t.Errorf("error %v", err)
	}
	want("first sync failed", false)
	h.during(succeed)
	want("first sync", true)
	h.changed()
	want("a change waits", true)
	h.patience = 0
	want("a change waits too long", false)
	h.during(fail)
	h.changed()
	want("and failed", false)
	h.during(succeed)
	want("in the end it was carried out", true)
	h.during(func() error { h.changed(); return nil })
	want("a change that came during the sync waits for the next", false)
}

// One family fails, the other does not.
func TestHealthOfFamilies(t *testing.T) {
	h := &health{patience: time.Hour}
	upToDate := familiesForTest(h, nft.IPv4, nft.IPv6)
	fail, succeed := func() error { return errors.New("failing") }, func() error { return nil }
	want := func(what string, healthy4, healthy6, newer bool) {
		t.Helper()
		s := h.state()
		if len(s) != 2 || s[0].Family != "IPv4" || s[1].Family != "IPv6" || s[0].Healthy != healthy4 || s[1].Healthy != healthy6 {
			t.Errorf("%s: %+v", what, s)
		}
		if got := s[0].LastUpdated.After(s[1].LastUpdated); got != newer {
			t.Errorf("%s: IPv4 is newer: %v: %+v", what, got, s)
		}
		if synced := !s[0].LastUpdated.IsZero() && !s[1].LastUpdated.IsZero(); h.ok() != (healthy4 && healthy6 && synced) {
			t.Errorf("%s: healthy is %v", what, h.ok())
		}
	}
	upToDate[nft.IPv4] = true
	h.changed()
	h.during(fail)
	want("IPv6 has never been written, but is not late", true, true, true)
	upToDate[nft.IPv6] = true
	h.during(succeed)
	want("both are written", true, true, false)

	upToDate[nft.IPv6] = false
	h.changed()
	h.during(fail)
	want("IPv6 waits, but not for long", true, true, true)
	h.patience = 0
	want("IPv6 waits too long", true, false, true)
	h.during(fail)
	want("and still does", true, false, true)
	h.patience = time.Hour
	want("the time counts from the change", true, true, true)
}

// A sync that fails takes nothing from the time that its change waits.
func TestHealthCountsFromTheChange(t *testing.T) {
	h := &health{patience: time.Hour}
	familiesForTest(h, nft.IPv4)
	h.during(func() error { return nil })
	h.changed()
	since := h.families[0].waiting
	for range 2 {
		h.during(func() error { h.changed(); return errors.New("failing") })
		if got := h.families[0].waiting; !got.Equal(since) || since.IsZero() {
			t.Errorf("waits since %v, want %v", got, since)
		}
	}
}

// With tables in the kernel: a family has an update time with its first sync, and
// is late with what the kernel does not take.
func TestProxierHealth(t *testing.T) {
	tabletest.NewNamespace(t)
	refuse := true
	config := Config{NodeName: "node1", SyncPeriod: time.Hour}
	opened := 0
	config.open = func() (table.Kernel, error) {
		opened++ // IPv4 first
		ipv6 := opened == 2
		return openWith(func(_ *nft.Batch, commit func() error) error {
			if refuse && ipv6 {
				return unix.ENOMEM
			}
			return commit()
		})()
	}
	p := newTestProxier(t, config, nft.IPv4, nft.IPv6)
	want := func(what string, synced4, synced6 bool) {
		t.Helper()
		s := p.Health()
		if len(s) != 2 || s[0].Family != "IPv4" || s[1].Family != "IPv6" {
			t.Fatalf("%s: %+v", what, s)
		}
		for i, synced := range []bool{synced4, synced6} {
			if s[i].LastUpdated.IsZero() == synced || !s[i].Healthy {
				t.Errorf("%s: %+v", what, s[i])
			}
		}
		if p.Healthy() != (synced4 && synced6) {
			t.Errorf("%s: healthy: %v", what, p.Healthy())
		}
	}
	want("before the first sync", false, false)
	if err := p.health.during(p.syncChanges); err == nil {
		t.Error("no error")
	}
	want("the kernel takes IPv4 only", true, false)
	p.health.patience = 0
	if s := p.Health(); !s[0].Healthy || s[1].Healthy {
		t.Errorf("IPv6 is late: %+v", s)
	}
	p.health.patience = time.Hour
	refuse = false
	if err := p.health.during(p.syncChanges); err != nil {
		t.Error(err)
	}
	want("the kernel takes both", true, true)
}

// Changes that cannot be synced yet, because the first lists are not complete, do
// not make a proxier late: a restart would not help. From then on they do.
func TestHealthBeforeTheFirstLists(t *testing.T) {
	p, err := assemble(Config{NodeName: "node1"}, nft.IPv4)
	if err != nil {
		t.Fatal(err)
	}
	p.health.patience = 0
	inTime := func(what string, want bool) {
		t.Helper()
		if s := p.Health(); s[0].Healthy != want || p.Healthy() {
			t.Errorf("%s: healthy: %v, %+v", what, p.Healthy(), s)
		}
	}
	inTime("at the start", true)
	p.OnServiceAdd(apiService(func(*corev1.Service) {}))
	p.Sync()
	inTime("after a Service", true)
	p.OnServiceSynced()
	inTime("after all Services", true)
	p.OnEndpointSlicesSynced()
	inTime("after both lists, without a sync", false)
}
