package localhost

import (
	"context"
	"math/rand/v2"
	"net"
	"net/netip"
	"time"

	"k8s.io/klog/v2"
)

// serve forwards a connection to an endpoint. If that fails, it resets the
// connection.
func (s *Server) serve(p *nodePort, c *connection) {
	if target, ok := s.begin(p, c); ok {
		endpoint, err := s.dial(c.life, target)
		if err == nil {
			s.mu.Lock()
			c.endpoint = endpoint.(*net.TCPConn)
			s.mu.Unlock()
			// A new goroutine has a smaller stack than this one, which
			// connected.
			go s.forward(c)
			return
		}
		s.logDialFailure(p, c, target, err)
	}
	reset(c.client)
	s.finish(c)
}

// forward forwards a connection until it ends.
func (s *Server) forward(c *connection) {
	defer s.finish(c)
	if c.life.Err() != nil {
		c.reset()
		return
	}
	c.forward(&s.buffers)
}

// replace resets a connection whose place another one takes.
func (s *Server) replace(c *connection) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c.end()
	c.reset()
}

// Reset resets the connections of a NodePort to a target that no longer exists,
// and returns their number.
func (s *Server) Reset(port uint16, target netip.AddrPort) int {
	return s.resetIf(func(c *connection) bool { return c.port == port && c.target == target })
}

// resetIf resets the connections for which a function returns true, and returns
// their number.
func (s *Server) resetIf(wanted func(*connection) bool) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.connections {
		if wanted(c) {
			c.end()
			c.reset()
			n++
		}
	}
	return n
}

// dial connects to an endpoint.
func dial(ctx context.Context, to netip.AddrPort) (net.Conn, error) {
	dialer := net.Dialer{Timeout: dialTimeout}
	return dialer.DialContext(ctx, network(to), to.String())
}

// begin adds a connection and chooses its endpoint. ok is false if there is no
// endpoint, or if the server has ended.
func (s *Server) begin(p *nodePort, c *connection) (target netip.AddrPort, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(p.Targets) == 0 || s.drained.Err() != nil {
		return target, false
	}
	s.connections[c] = struct{}{}
	c.port, c.target = p.Port, p.choose(s.now())
	return c.target, true
}

// finish removes a connection that has ended.
func (s *Server) finish(c *connection) {
	c.end()
	c.place.Release()
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.connections, c)
	s.endDrain()
}

// choose returns the endpoint for a new connection: a random one, or with
// session affinity the one of the last connection, unless that was too long
// ago. There must be an endpoint.
func (p *nodePort) choose(now time.Time) netip.AddrPort {
	target := p.Targets[rand.IntN(len(p.Targets))]
	if p.Affinity == 0 {
		return target
	}
	if p.isPinned(now) {
		target = p.pin
	}
	p.pin, p.pinned = target, now
	return target
}

// isPinned reports whether the next connection goes to the endpoint of the last
// one.
func (p *nodePort) isPinned(now time.Time) bool {
	return p.pin.IsValid() && now.Sub(p.pinned) < p.Affinity
}

// dialLogPeriod is the minimum interval between messages about endpoints of a
// NodePort that cannot be reached.
const dialLogPeriod = 10 * time.Second

func (s *Server) logDialFailure(p *nodePort, c *connection, target netip.AddrPort, err error) {
	s.mu.Lock()
	servicePort, now := p.ServicePort, s.now()
	again := now.Sub(p.dialLogged) < dialLogPeriod
	if !again {
		p.dialLogged = now
	}
	s.mu.Unlock()
	if !again && c.life.Err() == nil {
		klog.ErrorS(err, "Failed to connect to an endpoint, resetting the connection to the NodePort",
			"servicePort", servicePort, "endpoint", target)
	}
}

// Drain closes all ports and waits until all connections have ended. When ctx
// ends, it resets those that remain. The server does not listen afterwards.
func (s *Server) Drain(ctx context.Context) {
	if n := s.stop(); n > 0 && ctx.Err() == nil {
		klog.InfoS("Waiting for connections to NodePorts on localhost", "address", s.config.Addr, "count", n)
	}
	select {
	case <-s.drained.Done():
	case <-ctx.Done():
		s.end()
		if n := s.resetIf(func(*connection) bool { return true }); n > 0 {
			klog.InfoS("Reset connections to NodePorts on localhost", "address", s.config.Addr, "count", n)
		}
	}
}

// stop closes all ports and returns the number of connections.
func (s *Server) stop() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.draining = true
	for _, p := range s.ports {
		s.close(p)
	}
	s.endDrain()
	return len(s.connections)
}

// endDrain ends drained when the last connection has ended.
func (s *Server) endDrain() {
	if s.draining && len(s.connections) == 0 {
		s.setDrained()
	}
}
