package proxier

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/healthcheck"
	"github.com/nftproxy/nftproxy/nft"
)

// toldHealth records what the server of health-check NodePorts is told.
type toldHealth []string

func (h *toldHealth) SetService(s healthcheck.Service) {
	*h = append(*h, fmt.Sprintf("set %s/%s port %d: %d", s.Namespace, s.Name, s.Port, s.LocalEndpoints))
}
func (h *toldHealth) DeleteService(ns, name string) { *h = append(*h, "delete "+ns+"/"+name) }
func (h *toldHealth) SetAddrs(addrs []netip.Addr)   { *h = append(*h, fmt.Sprint("listen on ", addrs)) }

func TestHealthCheckNodePorts(t *testing.T) {
	newNamespace(t)
	b := newBackend(t, &Config{NodeName: "node1"}, nft.IPv4)
	var got toldHealth
	b.health = &got
	step := func(what string, want ...string) {
		t.Helper()
		got = nil
		mustSync(t, b)
		if !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", what, got, want)
		}
	}
	name := ServiceName{"ns", "lb"}
	step("no address of the node known", "listen on [0.0.0.0]")
	b.SetNode(sampleNode())
	step("the node's address", "listen on [172.30.0.11]")
	b.SetService(simpleService("lb", "10.96.0.1", func(s *Service) { s.HealthCheckNodePort = 32000 }))
	b.SetEndpoint(name, simpleEndpoint("10.244.0.1"))
	elsewhere := simpleEndpoint("10.244.0.2")
	elsewhere.Node = "node2"
	b.SetEndpoint(name, elsewhere)
	ending := simpleEndpoint("10.244.0.3")
	ending.Ready = false
	b.SetEndpoint(name, ending)
	step("ready endpoints of this node count", "set ns/lb port 32000: 1")
	b.DeleteEndpoint(name, simpleEndpoint("10.244.0.1").EndpointKey)
	step("no endpoint of this node", "set ns/lb port 32000: 0")
	b.SetService(simpleService("lb", "10.96.0.1", nil))
	step("no health-check NodePort", "delete ns/lb")
	b.SetService(simpleService("lb", "10.96.0.1", func(s *Service) { s.HealthCheckNodePort = 32000 }))
	step("again", "set ns/lb port 32000: 0")
	b.DeleteService(name)
	step("no service", "delete ns/lb")
}

// Where NodePorts listen on no address, health checks listen on none, and not on all. Addresses are told before Services.
func TestHealthChecksOnNoAddress(t *testing.T) {
	newNamespace(t)
	b := newBackend(t, &Config{NodeName: "node1", NodePortAddresses: NodePortAddresses{CIDRs: []netip.Prefix{prefix("203.0.113.0/24")}}}, nft.IPv4)
	var got toldHealth
	b.health = &got
	b.SetNode(sampleNode())
	b.SetService(simpleService("lb", "10.96.0.1", func(s *Service) { s.HealthCheckNodePort = 32000 }))
	mustSync(t, b)
	if want := []string{"listen on []", "set ns/lb port 32000: 0"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if b.nodePortAddrs == nil {
		t.Error("no addresses are told as nil, which stands for all")
	}
}

func TestHealth(t *testing.T) {
	h := &health{patience: time.Hour}
	failing := errors.New("failing")
	fail, succeed := func() error { return failing }, func() error { return nil }
	want := func(what string, ok bool) {
		t.Helper()
		if h.ok() != ok {
			t.Errorf("%s: healthy is %v", what, !ok)
		}
	}
	want("before the first sync", false)
	h.changed()
	h.during(fail)
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
