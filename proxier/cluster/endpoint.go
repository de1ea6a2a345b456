package cluster

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"
)

// EndpointKey identifies an endpoint of a Service.
type EndpointKey struct {
	// Source names the part of the Service's endpoints that the endpoint
	// belongs to, such as an EndpointSlice.
	Source string
	Addr   netip.Addr
}

// Compare orders keys by address, then by source.
func (k EndpointKey) Compare(o EndpointKey) int {
	return cmp.Or(k.Addr.Compare(o.Addr), strings.Compare(k.Source, o.Source))
}

// Endpoint is one address of a Service (k8s.io/api/discovery/v1.Endpoint). If
// two sources have an endpoint with the same address and port, it is used once.
type Endpoint struct {
	EndpointKey
	// Ports are the ports of the endpoint, by the names of service ports, in
	// ascending order (see EndpointPort.Compare).
	Ports []EndpointPort
	// Node is the name of the endpoint's node, "" if it is unknown.
	Node string
	// Pod is the name of the pod, in the namespace of the Service. It is "" if
	// the endpoint is no pod, or if it is unknown.
	Pod string
	// Hints restrict the clients that should use the endpoint. nil means none.
	Hints *Hints
	// Weight is the endpoint's share of new connections, relative to others.
	// An endpoint in several sources has the highest of its weights.
	Weight Weight
	// Ready endpoints get traffic. If a Service has none, endpoints that are
	// Serving and Terminating get it (KEP-1669).
	Ready, Serving, Terminating bool
}

// EndpointPort is a port of an endpoint.
type EndpointPort struct {
	Name     string
	Protocol Protocol
	Port     uint16 // 0: all ports; traffic keeps the number of the service port
}

// Compare orders ports by name, then by protocol.
func (p EndpointPort) Compare(o EndpointPort) int {
	return cmp.Or(strings.Compare(p.Name, o.Name), cmp.Compare(p.Protocol, o.Protocol))
}

// Hints are the zones and the nodes whose clients should use an endpoint
// (KEP-2433, KEP-3015).
type Hints struct{ Zones, Nodes []string }

// Rank orders endpoints by their conditions: 2 for a ready endpoint, 1 for one
// that is serving and terminating, 0 for one that must not get traffic.
func (e *Endpoint) Rank() int {
	switch {
	case e.Ready:
		return 2
	case e.Serving && e.Terminating:
		return 1
	}
	return 0
}

// Equal reports whether two endpoints are the same in all fields.
func (e *Endpoint) Equal(o *Endpoint) bool {
	return e.EndpointKey == o.EndpointKey && e.Node == o.Node && e.Pod == o.Pod && e.Weight == o.Weight &&
		e.Ready == o.Ready && e.Serving == o.Serving && e.Terminating == o.Terminating &&
		slices.Equal(e.Ports, o.Ports) && e.Hints.equal(o.Hints)
}

func (h *Hints) equal(o *Hints) bool {
	if h == nil || o == nil {
		return h == o
	}
	return slices.Equal(h.Zones, o.Zones) && slices.Equal(h.Nodes, o.Nodes)
}
