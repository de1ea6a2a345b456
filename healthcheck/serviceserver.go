package healthcheck

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"time"

	"k8s.io/klog/v2"
)

// Service is a service with a health-check NodePort.
type Service struct {
	Namespace, Name string

	// Port is spec.healthCheckNodePort. If it is 0, the service has no
	// listener.
	Port uint16

	// LocalEndpoints is the number of ready endpoints on this node.
	LocalEndpoints int
}

func (s Service) key() klog.ObjectRef { return klog.KRef(s.Namespace, s.Name) }

// ServiceConfig configures a [ServiceServer].
type ServiceConfig struct {
	// NodeName is the name of this node in events.
	NodeName string

	// Healthy reports whether the proxy is healthy: the kernel's rules are up
	// to date. It is called for each request, on any goroutine.
	Healthy func() bool

	// Report is called if a port cannot be opened, once for each address and
	// error. It is called on Run's goroutine. It may be nil.
	Report func(Event)
}

// Event is a message for the owner of a service.
type Event struct {
	Namespace, Name string // of the service
	Reason          string // one word, as in the events API
	Message         string
}

// ServiceServer serves the health-check NodePorts of services. Its methods
// are safe for concurrent use and do not block. Run opens and closes the
// listeners.
type ServiceServer struct {
	config       ServiceConfig
	listen       func(network, address string) (net.Listener, error)
	minDelay     time.Duration // before the first retry to open a port
	maxDelay     time.Duration
	drainTimeout time.Duration
	limit        *connLimit    // of all ports
	wake         chan struct{} // capacity 1; receives a value after a change

	// Run's goroutine owns these.
	open     map[binding]*listener
	failures map[binding]failure
	requests sync.WaitGroup // of stopped listeners

	mu       sync.RWMutex
	services map[klog.ObjectRef]Service
	addrs    []netip.Addr
}

// allAddrs stands for all addresses of both families (see binding).
var allAddrs = []netip.Addr{{}}

// NewServiceServer returns a server without services, for all addresses of
// the node. It does not listen until Run is called.
func NewServiceServer(config ServiceConfig) (*ServiceServer, error) {
	if config.Healthy == nil {
		return nil, errors.New("service health checks: Healthy is required")
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
		limit:        newConnLimit("service health checks"),
		wake:         make(chan struct{}, 1),
		open:         make(map[binding]*listener),
		failures:     make(map[binding]failure),
		services:     make(map[klog.ObjectRef]Service),
		addrs:        allAddrs,
	}, nil
}

// SetService adds or updates a service. A change of LocalEndpoints does not
// affect its listeners.
func (s *ServiceServer) SetService(service Service) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.services[service.key()]
	s.services[service.key()] = service
	if before.Port != service.Port {
		s.signal()
	}
}

// DeleteService removes a service and its listeners. An unknown service is
// ignored.
func (s *ServiceServer) DeleteService(namespace, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := klog.KRef(namespace, name)
	if _, ok := s.services[key]; ok {
		delete(s.services, key)
		s.signal()
	}
}

// SetAddrs sets the addresses of the node to listen on: all of them if addrs
// is nil, none if addrs is empty but not nil. An unspecified address stands
// for all addresses of its family. Invalid addresses are ignored. Listeners
// on addresses that do not change are kept.
func (s *ServiceServer) SetAddrs(addrs []netip.Addr) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.addrs = allAddrs; addrs != nil {
		s.addrs = normalize(addrs)
	}
	s.signal()
}

// signal wakes Run.
func (s *ServiceServer) signal() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// desired returns the bindings that need a listener, in order.
func (s *ServiceServer) desired() []binding {
	s.mu.RLock()
	defer s.mu.RUnlock()
	var bindings []binding
	for key, service := range s.services {
		if service.Port == 0 {
			continue
		}
		for _, addr := range s.addrs {
			bindings = append(bindings, binding{key, netip.AddrPortFrom(addr, service.Port)})
		}
	}
	slices.SortFunc(bindings, binding.compare)
	return bindings
}

// serviceHealthFormat is the format of kube-proxy. It ends without a newline.
const serviceHealthFormat = `{
	"service": {
		"namespace": %q,
		"name": %q
	},
	"localEndpoints": %d,
	"serviceProxyHealthy": %v
}`

// handler returns the handler of a service. It responds with 200 if the proxy
// is healthy and the service has endpoints on this node, with 503 otherwise.
// Load balancers that support the weight header (GCP) distribute traffic by it
// (KEP-1669, Kubernetes 1.31).
func (s *ServiceServer) handler(key klog.ObjectRef) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		s.mu.RLock()
		local := s.services[key].LocalEndpoints // 0 if it was deleted
		s.mu.RUnlock()
		healthy := s.config.Healthy()
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("X-Load-Balancing-Endpoint-Weight", strconv.Itoa(local))
		if local > 0 && healthy {
			w.WriteHeader(http.StatusOK)
		} else {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		fmt.Fprintf(w, serviceHealthFormat, key.Namespace, key.Name, local, healthy)
	})
}
