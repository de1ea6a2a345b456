package tabletest

import (
	"maps"
	"slices"

	"github.com/nftproxy/nftproxy/proxier/cluster"
)

// Model passes objects to a sink and keeps them: another sink can get the same
// objects.
type Model struct {
	cluster.Sink
	node      *cluster.Node
	services  map[cluster.ServiceName]*cluster.Service
	endpoints map[endpointSource][]*cluster.Endpoint
}

type endpointSource struct {
	name   cluster.ServiceName
	source string
}

// NewModel returns a Model without objects but the node.
func NewModel(to cluster.Sink, node *cluster.Node) *Model {
	m := &Model{
		Sink: to, services: make(map[cluster.ServiceName]*cluster.Service),
		endpoints: make(map[endpointSource][]*cluster.Endpoint),
	}
	m.SetNode(node)
	return m
}

// Replace passes all objects to another sink, which replaces the present one.
func (m *Model) Replace(to cluster.Sink) {
	m.Sink = to
	to.SetNode(m.node)
	for _, name := range slices.SortedFunc(maps.Keys(m.services), cluster.ServiceName.Compare) {
		to.SetService(m.services[name])
	}
	for at, endpoints := range m.endpoints {
		to.SetEndpoints(at.name, at.source, endpoints)
	}
}

// SetNode implements cluster.Sink.
func (m *Model) SetNode(n *cluster.Node) {
	m.node = n
	m.Sink.SetNode(n)
}

// SetService implements cluster.Sink.
func (m *Model) SetService(svc *cluster.Service) {
	m.services[svc.Name] = svc
	m.Sink.SetService(svc)
}

// DeleteService implements cluster.Sink.
func (m *Model) DeleteService(name cluster.ServiceName) {
	delete(m.services, name)
	m.Sink.DeleteService(name)
}

// SetEndpoints implements cluster.Sink.
func (m *Model) SetEndpoints(name cluster.ServiceName, source string, endpoints []*cluster.Endpoint) {
	m.endpoints[endpointSource{name, source}] = endpoints
	m.Sink.SetEndpoints(name, source, endpoints)
}
