package follow

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/healthcheck"
	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
	"github.com/nftproxy/nftproxy/proxier/table/tabletest"
)

// healthCalls records the calls of a healthServer.
type healthCalls []string

func (h *healthCalls) SetService(s healthcheck.Service) {
	*h = append(*h, fmt.Sprintf("set %s/%s port %d: %d", s.Namespace, s.Name, s.Port, s.LocalEndpoints))
}
func (h *healthCalls) DeleteService(ns, name string) { *h = append(*h, "delete "+ns+"/"+name) }
func (h *healthCalls) Run(context.Context) error     { return nil }
func (h *healthCalls) SetAddrs(addrs []netip.Addr)   { *h = append(*h, fmt.Sprint("listen on ", addrs)) }

// The health server receives each committed change of a health-check
// NodePort.
func TestHealthCheckNodePorts(t *testing.T) {
	var got healthCalls
	sink := newFollowed(t, ruleset.Config{}, &healthChecks{server: &got})
	step := func(name string, want ...string) {
		t.Helper()
		got = nil
		tabletest.Sync(t, sink)
		if !slices.Equal(got, want) {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
	lb := cluster.ServiceName{Namespace: "ns", Name: "lb"}
	step("no address of the node is known", "listen on [0.0.0.0]")
	sink.SetNode(tabletest.Node())
	step("an address of the node", "listen on [172.30.0.11]")
	sink.SetService(tabletest.Service("lb", "10.96.0.1", func(s *cluster.Service) { s.HealthCheckNodePort = 32000 }))
	tabletest.SetEndpoint(sink, lb, tabletest.Endpoint("10.244.0.1"))
	elsewhere := tabletest.Endpoint("10.244.0.2")
	elsewhere.Node = "node2"
	tabletest.SetEndpoint(sink, lb, elsewhere)
	terminating := tabletest.Endpoint("10.244.0.3")
	terminating.Ready = false
	tabletest.SetEndpoint(sink, lb, terminating)
	portless := tabletest.Endpoint("10.244.0.4")
	portless.Ports = nil
	tabletest.SetEndpoint(sink, lb, portless)
	tabletest.SetEndpoint(sink, lb, tabletest.Endpoint("10.96.0.99")) // in a service CIDR
	weightless := tabletest.Endpoint("10.244.0.5")
	weightless.Weight = cluster.WeightOf(0)
	tabletest.SetEndpoint(sink, lb, weightless)
	step("one ready endpoint on this node", "set ns/lb port 32000: 1")
	sink.SetService(tabletest.Service("lb", "10.96.0.1", func(s *cluster.Service) {
		s.HealthCheckNodePort, s.AffinityTimeout = 32000, time.Hour
	}))
	step("weights have no effect with session affinity", "set ns/lb port 32000: 2")
	tabletest.DeleteEndpoint(sink, lb, weightless.EndpointKey)
	tabletest.DeleteEndpoint(sink, lb, tabletest.Endpoint("10.244.0.1").EndpointKey)
	step("no endpoint on this node", "set ns/lb port 32000: 0")
	sink.SetService(tabletest.Service("lb", "10.96.0.1", nil))
	step("the health-check NodePort is removed", "delete ns/lb")
	sink.SetService(tabletest.Service("lb", "10.96.0.1", func(s *cluster.Service) { s.HealthCheckNodePort = 32000 }))
	step("it is added again", "set ns/lb port 32000: 0")
	sink.DeleteService(lb)
	step("the Service is deleted", "delete ns/lb")
}

// If NodePorts listen on no address, health checks listen on none.
func TestHealthChecksOnNoAddress(t *testing.T) {
	var got healthCalls
	sink := newFollowed(t, ruleset.Config{
		NodePortAddresses: ruleset.NodePortAddresses{CIDRs: tabletest.Prefixes("203.0.113.0/24")},
	}, &healthChecks{server: &got})
	sink.SetNode(tabletest.Node())
	sink.SetService(tabletest.Service("lb", "10.96.0.1", func(s *cluster.Service) { s.HealthCheckNodePort = 32000 }))
	tabletest.Sync(t, sink)
	// SetAddrs is not called, because there were no addresses before.
	if want := []string{"set ns/lb port 32000: 0"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
