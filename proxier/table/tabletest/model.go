package tabletest

import (
	"github.com/nftproxy/nftproxy/proxier/cluster"
)

// Model passes objects to a sink and keeps them: changes can be taken back, and
// another sink can get the same objects.
type Model struct {
	cluster.Sink
	node      *cluster.Node
	services  map[cluster.ServiceName]*cluster.Service
	endpoints map[endpointSource][]*cluster.Endpoint
	undo      []func()
}

type endpointSource struct {
	name   cluster.ServiceName
	source string
}

// NewModel returns a Model without objects but the node.
func NewModel(to cluster.Sink, node *cluster.Node) *Model {
	m := &Model{
		Sink: to, node: node, services: make(map[cluster.ServiceName]*cluster.Service),
		endpoints: make(map[endpointSource][]*cluster.Endpoint),
	}
	to.SetNode(node)
	return m
}

// Replace passes all objects to another sink, which replaces the present one.
func (m *Model) Replace(to cluster.Sink) {
	m.Sink = to
	to.SetNode(m.node)
	for _, svc := range m.services {
		to.SetService(svc)
	}
	for at, endpoints := range m.endpoints {
		to.SetEndpoints(at.name, at.source, endpoints)
	}
}

// Changes returns the number of changes that Revert can take back.
func (m *Model) Changes() int { return len(m.undo) }

// Revert takes back the last n changes, or as many as there are.
func (m *Model) Revert(n int) {
	for ; n > 0 && len(m.undo) > 0; n-- {
		last := m.undo[len(m.undo)-1]
		m.undo = m.undo[:len(m.undo)-1]
		last()
	}
}

// SetNode implements cluster.Sink.
func (m *Model) SetNode(n *cluster.Node) {
	before := m.node
	m.undo = append(m.undo, func() { m.setNode(before) })
	m.setNode(n)
}

func (m *Model) setNode(n *cluster.Node) {
	m.node = n
	m.Sink.SetNode(n)
}

// SetService implements cluster.Sink.
func (m *Model) SetService(svc *cluster.Service) { m.change(svc.Name, svc) }

// DeleteService implements cluster.Sink.
func (m *Model) DeleteService(name cluster.ServiceName) { m.change(name, nil) }

func (m *Model) change(name cluster.ServiceName, svc *cluster.Service) {
	before := m.services[name]
	m.undo = append(m.undo, func() { m.setService(name, before) })
	m.setService(name, svc)
}

func (m *Model) setService(name cluster.ServiceName, svc *cluster.Service) {
	if svc == nil {
		delete(m.services, name)
		m.Sink.DeleteService(name)
		return
	}
	m.services[name] = svc
	m.Sink.SetService(svc)
}

// SetEndpoints implements cluster.Sink.
func (m *Model) SetEndpoints(name cluster.ServiceName, source string, endpoints []*cluster.Endpoint) {
	at := endpointSource{name, source}
	before := m.endpoints[at]
	m.undo = append(m.undo, func() { m.setEndpoints(at, before) })
	m.setEndpoints(at, endpoints)
}

func (m *Model) setEndpoints(at endpointSource, endpoints []*cluster.Endpoint) {
	m.endpoints[at] = endpoints
	m.Sink.SetEndpoints(at.name, at.source, endpoints)
}
