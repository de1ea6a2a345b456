package cluster

import "errors"

// Sink receives the state of a cluster from a source. A source calls Setup
// once, then passes all objects and later all changes, and calls Sync whenever
// the state is consistent. Nothing takes effect before Sync.
//
// Setting an object that is equal to the present one is not a change. Deleting
// an object that does not exist is not an error. The caller must not modify
// objects after it has passed them. Only one goroutine may call the methods at
// a time.
type Sink interface {
	// Setup prepares the sink for Sync. It is called once, before Sync.
	Setup() error
	// SetNode describes this node.
	SetNode(*Node)
	// SetService adds a Service or replaces the one with the same name.
	SetService(*Service)
	// DeleteService removes a Service. Its endpoints stay until they are
	// deleted.
	DeleteService(ServiceName)
	// SetEndpoints replaces all endpoints that a Service has from one source.
	// The Service need not exist yet. The endpoints must have that Source and
	// be in ascending order of their addresses, without duplicates.
	SetEndpoints(name ServiceName, source string, endpoints []*Endpoint)
	// Sync makes the changes since the last Sync effective. If it fails, the
	// sink continues to work with the state before, or with a part of the
	// changes, and the next Sync tries again.
	Sync() error
}

// Sinks is a Sink that passes everything to several sinks, for example to one
// for each address family.
type Sinks []Sink

// Setup sets up every sink.
func (s Sinks) Setup() error { return s.each(Sink.Setup) }

// Sync syncs every sink, even if one of them fails.
func (s Sinks) Sync() error { return s.each(Sink.Sync) }

func (s Sinks) each(f func(Sink) error) error {
	var errs []error
	for _, sink := range s {
		errs = append(errs, f(sink))
	}
	return errors.Join(errs...)
}

func (s Sinks) pass(f func(Sink)) {
	for _, sink := range s {
		f(sink)
	}
}

// SetNode implements Sink.
func (s Sinks) SetNode(n *Node) { s.pass(func(to Sink) { to.SetNode(n) }) }

// SetService implements Sink.
func (s Sinks) SetService(svc *Service) { s.pass(func(to Sink) { to.SetService(svc) }) }

// DeleteService implements Sink.
func (s Sinks) DeleteService(name ServiceName) { s.pass(func(to Sink) { to.DeleteService(name) }) }

// SetEndpoints implements Sink.
func (s Sinks) SetEndpoints(name ServiceName, source string, endpoints []*Endpoint) {
	s.pass(func(to Sink) { to.SetEndpoints(name, source, endpoints) })
}
