package localhost

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/nftproxy/nftproxy/healthcheck/connlimit"
)

// Config configures a [Server].
type Config struct {
	// Addr is the address to listen on: 127.0.0.1 or ::1.
	Addr netip.Addr

	// Report is called if a port cannot be opened, once for each cause. It is
	// called on Run's goroutine, and must neither call the Server nor block. It
	// may be nil.
	Report func(Event)

	// Limit limits the number of connections. The connections to a port are a
	// group. Servers can share it.
	Limit *connlimit.Limit[uint16]
}

// Event is a message for the owner of a Service.
type Event struct {
	Namespace, Name string // of the Service
	Message         string
}

// NodePort is a TCP NodePort of a service port.
type NodePort struct {
	Port            uint16
	Namespace, Name string // of the Service
	ServicePort     string // namespace/name:port, for the log
	// Targets are the endpoints for new connections. Without targets, the port
	// is closed.
	Targets []netip.AddrPort
	// Affinity is the timeout of session affinity, 0 without it. All clients
	// have the same address, so they use the same endpoint.
	Affinity time.Duration
}

// Limits of a Server.
const (
	dialTimeout = 5 * time.Second
	bufferSize  = 64 << 10
	// firstRetry and lastRetry limit the delay before a port that could not be
	// opened is tried again, which doubles with each failure.
	firstRetry = 500 * time.Millisecond
	lastRetry  = 10 * time.Second
)

// Server forwards connections to NodePorts on one address. Its methods are
// safe for concurrent use. Set and Delete do not block; Run opens and closes
// the listeners.
type Server struct {
	config  Config
	listen  func(netip.AddrPort) (net.Listener, error)
	dial    func(context.Context, netip.AddrPort) (net.Conn, error)
	now     func() time.Time
	wake    chan struct{} // capacity 1; receives a value after a change
	buffers sync.Pool
	// life ends when the remaining connections are reset.
	life context.Context
	end  context.CancelFunc

	mu      sync.Mutex
	ports   map[uint16]*nodePort
	changed map[uint16]struct{} // ports that changed, or could not be opened
	stats   Stats
	// connections are those that are open or being opened.
	connections map[*connection]struct{}
	draining    bool
	drained     context.Context // ends when there are no connections and will be none
	setDrained  context.CancelFunc
}

// Stats contains counters of a Server.
type Stats struct {
	// Listeners is the number of open ports.
	Listeners int
	// Failures counts failures to open a port.
	Failures int
}

// New returns a server without NodePorts. It does not listen until Run is
// called.
func New(config Config) (*Server, error) {
	if !config.Addr.IsLoopback() {
		return nil, errors.New("NodePorts on localhost: Addr is not a loopback address")
	}
	if config.Limit == nil {
		return nil, errors.New("NodePorts on localhost: Limit is required")
	}
	if config.Report == nil {
		config.Report = func(Event) {}
	}
	s := &Server{
		config: config, listen: listen, dial: dial, now: time.Now,
		wake:        make(chan struct{}, 1),
		buffers:     sync.Pool{New: func() any { return new([bufferSize]byte) }},
		ports:       make(map[uint16]*nodePort),
		changed:     make(map[uint16]struct{}),
		connections: make(map[*connection]struct{}),
	}
	s.life, s.end = context.WithCancel(context.Background())
	s.drained, s.setDrained = context.WithCancel(context.Background())
	return s, nil
}

// Set adds a NodePort or replaces the one with the same port. Connections that
// are open stay open.
func (s *Server) Set(n NodePort) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.ports[n.Port]
	if p == nil {
		p = &nodePort{}
		s.ports[n.Port] = p
	}
	if p.ServicePort != n.ServicePort || p.Affinity != n.Affinity || !slices.Contains(n.Targets, p.pin) {
		p.pin = netip.AddrPort{}
	}
	p.NodePort = n
	s.changed[n.Port] = struct{}{}
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Delete deletes a NodePort and closes its port. Connections that are open stay
// open. An unknown port is ignored.
func (s *Server) Delete(port uint16) { s.Set(NodePort{Port: port}) }

// Stats returns the present numbers.
func (s *Server) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stats
}

// State describes a NodePort of a Server.
type State struct {
	NodePort
	// Pinned is the endpoint that session affinity chooses for the next
	// connection. It is invalid if any endpoint can be chosen.
	Pinned netip.AddrPort
	// Failure is the reason why a port with targets is closed, "" if it is open
	// or about to be opened.
	Failure string
}

// State returns the state of a NodePort. It has no targets if the port is
// closed.
func (s *Server) State(port uint16) State {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.ports[port]
	if p == nil {
		return State{}
	}
	state := State{NodePort: p.NodePort, Failure: p.failure.cause}
	if s.draining {
		state.Failure = "the proxy is about to end"
	}
	if p.isPinned(s.now()) {
		state.Pinned = p.pin
	}
	return state
}
