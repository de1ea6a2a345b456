package healthcheck

import (
	"errors"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"time"
)

// Config configures a [ServiceServer].
type Config struct {
	// NodeName is named in events.
	NodeName string

	// Healthy reports whether the proxy is healthy: whether what services are answered for is what the kernel does. It
	// is called for every request, on any goroutine.
	Healthy func() bool

	// Report is told that a service's port cannot be listened on, once for each address and each new reason; it may be
	// nil. It is called on Run's goroutine.
	Report func(Event)
}

// Event is something that the owner of a service should know.
type Event struct {
	Namespace, Name string // of the service
	Reason, Action  string // one word for each, as in the events API
	Message         string
}

// ReasonFailedToStart is the reason of events about a port that cannot be listened on, and ActionListen what was tried.
const (
	ReasonFailedToStart = "FailedToStartServiceHealthcheck"
	ActionListen        = "Listen"
)

// ServiceServer serves the health-check NodePorts of services. What it is told, it does in Run: listeners are opened and
// closed there, and a port that cannot be listened on is tried again until it can be or is no longer wanted. All methods
// are safe for concurrent use.
type ServiceServer struct {
	config       Config
	listen       func(network, address string) (net.Listener, error)
	minDelay     time.Duration // before a listener is tried again
	maxDelay     time.Duration
	drainTimeout time.Duration
	wake         chan struct{} // of capacity 1: what is wanted has changed

	mu       sync.RWMutex
	services map[name]Service
	some     bool // listen on addrs, not on all addresses
	addrs    []netip.Addr
}

// NewServiceServer makes a ServiceServer without services, for all addresses of the node. It listens to nothing until
// Run.
func NewServiceServer(config Config) (*ServiceServer, error) {
	if config.Healthy == nil {
		return nil, errors.New("service health checks: no Healthy function")
	}
	if config.Report == nil {
		config.Report = func(Event) {}
	}
	return &ServiceServer{
		config:       config,
		listen:       net.Listen,
		minDelay:     time.Second,
		maxDelay:     time.Minute,
		drainTimeout: 5 * time.Second,
		wake:         make(chan struct{}, 1),
		services:     make(map[name]Service),
	}, nil
}

// SetService adds a service or says what has changed in it. A change of LocalEndpoints alone leaves its listeners as
// they are.
func (s *ServiceServer) SetService(service Service) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.services[service.key()]
	s.services[service.key()] = service
	if before.Port != service.Port {
		s.changed()
	}
}

// DeleteService stops serving a service. It may be unknown.
func (s *ServiceServer) DeleteService(namespace, serviceName string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := name{namespace, serviceName}
	if _, ok := s.services[key]; ok {
		delete(s.services, key)
		s.changed()
	}
}

// Set says which services there are, in place of all that were known.
func (s *ServiceServer) Set(services []Service) {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.services)
	for _, service := range services {
		s.services[service.key()] = service
	}
	s.changed()
}

// SetAddrs says on which of the node's addresses to listen. nil means all, an empty list that is not nil none; an unspecified
// address means all of its family. Invalid ones are left out. Listeners on addresses that stay are not disturbed.
func (s *ServiceServer) SetAddrs(addrs []netip.Addr) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.addrs, s.some = normalize(addrs), addrs != nil
	s.changed()
}

// changed makes Run compare what is wanted with what is. It may be called with the mutex held.
func (s *ServiceServer) changed() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// wanted are the listeners that there should be, in order.
func (s *ServiceServer) wanted() []binding {
	s.mu.RLock()
	defer s.mu.RUnlock()
	var bindings []binding
	for name, service := range s.services {
		if service.Port == 0 {
			continue
		}
		if !s.some {
			bindings = append(bindings, binding{name, netip.AddrPortFrom(netip.Addr{}, service.Port)})
		}
		for _, addr := range s.addrs {
			bindings = append(bindings, binding{name, netip.AddrPortFrom(addr, service.Port)})
		}
	}
	slices.SortFunc(bindings, binding.compare)
	return bindings
}

// handler answers for one service.
func (s *ServiceServer) handler(n name) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		s.mu.RLock()
		service := s.services[n] // the zero Service, without endpoints, if it is gone
		s.mu.RUnlock()
		answer(w, n, service.LocalEndpoints, s.config.Healthy())
	})
}
