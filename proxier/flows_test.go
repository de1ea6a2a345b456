package proxier

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/nftproxy/nftproxy/conntrack"
	"github.com/nftproxy/nftproxy/nft"
)

// enqueued records which frontends are to be cleaned.
type enqueued []string

func (e *enqueued) Enqueue(changes ...conntrack.Change) {
	for _, c := range changes {
		*e = append(*e, fmt.Sprintf("%s gone=%v %v", c.Frontend, c.Gone, c.Endpoints))
	}
}

// Flows are looked at when a UDP service port lost an endpoint, got its first, lost its last, or lost an address, and never else.
func TestStaleFlows(t *testing.T) {
	newNamespace(t)
	b := newBackend(t, sampleConfig(), nft.IPv4)
	var got enqueued
	b.flows = &got
	step := func(what string, want ...string) {
		t.Helper()
		got = nil
		mustSync(t, b)
		if !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", what, got, want)
		}
	}
	svc := func(change func(*Service)) *Service {
		return simpleService("dns", "10.96.0.53", func(s *Service) {
			s.Ports = []ServicePort{{Name: "dns", Protocol: UDP, Port: 53}, {Name: "dns-tcp", Protocol: TCP, Port: 53}}
			if change != nil {
				change(s)
			}
		})
	}
	endpoint := func(last int, ready, serving bool) *Endpoint {
		return &Endpoint{
			EndpointKey: EndpointKey{"s", netip.AddrFrom4([4]byte{10, 244, 0, byte(last)})}, Ready: ready, Serving: serving, Terminating: !ready,
			Ports: []EndpointPort{{"dns", UDP, 53}, {"dns-tcp", TCP, 53}},
		}
	}
	name := svc(nil).Name
	b.SetService(svc(nil))
	step("new, without endpoints", "10.96.0.53:53 gone=false []")
	b.SetEndpoint(name, endpoint(1, true, true))
	step("the first endpoint", "10.96.0.53:53 gone=false [10.244.0.1:53]")
	b.SetEndpoint(name, endpoint(2, true, true))
	step("one more")
	b.SetEndpoint(name, endpoint(1, false, true))
	step("one ends, and still serves")
	b.SetEndpoint(name, endpoint(1, false, false))
	step("it serves no more", "10.96.0.53:53 gone=false [10.244.0.2:53]")
	b.SetService(svc(func(s *Service) {
		s.ExternalIPs, s.Ports[0].NodePort = []netip.Addr{addr("192.0.2.1")}, 30053
	}))
	step("more addresses", "192.0.2.1:53 gone=false [10.244.0.2:53]", "0.0.0.0:30053 gone=false [10.244.0.2:53]")
	b.SetService(svc(nil))
	step("fewer addresses", "192.0.2.1:53 gone=true []", "0.0.0.0:30053 gone=true []")
	b.DeleteEndpoint(name, endpoint(2, true, true).EndpointKey)
	step("the last endpoint", "10.96.0.53:53 gone=false []")
	b.DeleteService(name)
	step("the service", "10.96.0.53:53 gone=true []")
	other := simpleService("web", "10.96.0.80", nil)
	b.SetService(other)
	b.SetEndpoint(other.Name, simpleEndpoint("10.244.0.9"))
	step("TCP only")
}

// NodePorts that listen on some addresses only are cleaned on those.
func TestStaleFlowsOfNodePorts(t *testing.T) {
	newNamespace(t)
	b := newBackend(t, &Config{NodeName: "node1"}, nft.IPv4)
	var got enqueued
	b.flows = &got
	b.SetNode(sampleNode())
	b.SetService(simpleService("dns", "10.96.0.53", func(s *Service) {
		s.Ports = []ServicePort{{Name: "dns", Protocol: UDP, Port: 53, NodePort: 30053}}
	}))
	mustSync(t, b)
	if want := []string{"10.96.0.53:53 gone=false []", "172.30.0.11:30053 gone=false []"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	moved := sampleNode()
	moved.IPs = []netip.Addr{addr("172.30.0.12")}
	got = nil
	b.SetNode(moved)
	mustSync(t, b)
	if want := []string{"172.30.0.11:30053 gone=true []", "172.30.0.12:30053 gone=false []"}; !slices.Equal(got, want) {
		t.Errorf("after the node got another address: %q, want %q", got, want)
	}
}
