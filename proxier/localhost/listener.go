package localhost

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"k8s.io/klog/v2"
)

// nodePort is a NodePort and its listener.
type nodePort struct {
	NodePort
	listener net.Listener // nil while the port is closed

	// failure is the last failure to open the port, zero if there is none.
	failure failure
	delay   time.Duration
	retryAt time.Time

	// pin is the endpoint of session affinity, pinned the time of the last
	// connection to it.
	pin    netip.AddrPort
	pinned time.Time
	// dialLogged is the time of the last failure to connect that was logged.
	dialLogged time.Time
}

// failure is a failure to open the port of a service port.
type failure struct{ servicePort, cause string }

// listen opens a port. A listener with Multipath TCP, the default of package
// net, would cost more and has no use on a loopback address.
func listen(at netip.AddrPort) (net.Listener, error) {
	var config net.ListenConfig
	config.SetMultipathTCP(false)
	return config.Listen(context.Background(), network(at), at.String())
}

func network(at netip.AddrPort) string {
	if at.Addr().Is4() {
		return "tcp4"
	}
	return "tcp6"
}

// Run opens and closes ports until ctx ends. It then closes all ports and
// resets all connections; call Drain first to let them end. If a port cannot
// be opened, Run retries until it succeeds or the port is no longer needed. Run
// must be called only once.
func (s *Server) Run(ctx context.Context) {
	retry := time.NewTimer(0)
	defer retry.Stop()
	for {
		select {
		case <-ctx.Done():
			s.Drain(ctx)
			return
		case <-s.wake:
		case <-retry.C:
		}
		retry.Stop()
		if next := s.reconcile(); !next.IsZero() {
			retry.Reset(next.Sub(s.now()))
		}
	}
}

// reconcile opens and closes the ports that changed, and tries those again
// that could not be opened. It returns the time of the next retry, or the zero
// time.
func (s *Server) reconcile() (next time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.draining {
		return next
	}
	for port := range s.changed {
		p := s.ports[port]
		switch {
		case len(p.Targets) == 0:
			s.close(p)
			delete(s.ports, port)
			delete(s.changed, port)
			continue
		case p.listener == nil && !s.now().Before(p.retryAt):
			s.tryOpen(p)
		}
		if p.listener != nil {
			delete(s.changed, port)
		} else if next.IsZero() || p.retryAt.Before(next) {
			next = p.retryAt
		}
	}
	return next
}

// tryOpen opens a port. It reports a failure with a new cause.
func (s *Server) tryOpen(p *nodePort) {
	at := netip.AddrPortFrom(s.config.Addr, p.Port)
	l, err := s.listen(at)
	if err == nil {
		level := klog.Level(2)
		if p.failure != (failure{}) {
			level = 0 // the failure was logged
		}
		klog.V(level).InfoS("Listening for a NodePort", "servicePort", p.ServicePort, "address", at)
		p.listener, p.failure, p.delay = l, failure{}, 0
		s.stats.Listeners++
		go s.accept(p, p.Port, l)
		return
	}
	s.stats.Failures++
	now := failure{p.ServicePort, err.Error()}
	known := p.failure == now
	p.failure = now
	p.delay = min(max(2*p.delay, firstRetry), lastRetry)
	p.retryAt = s.now().Add(p.delay)
	if known {
		klog.V(2).InfoS("Failed to listen for a NodePort again",
			"servicePort", p.ServicePort, "address", at, "retryAfter", p.delay, "err", err)
		return
	}
	klog.ErrorS(err, "Failed to listen for a NodePort, retrying",
		"servicePort", p.ServicePort, "address", at, "retryAfter", p.delay)
	message := fmt.Sprintf("failed to listen on %s for the NodePort of %s, retrying: %v", at, p.ServicePort, err)
	s.config.Report(Event{Namespace: p.Namespace, Name: p.Name, Message: message})
}

// close closes a port if it is open.
func (s *Server) close(p *nodePort) {
	if p.listener == nil {
		return
	}
	p.listener.Close()
	p.listener = nil
	s.stats.Listeners--
	klog.V(2).InfoS("Stopped listening for a NodePort", "address", netip.AddrPortFrom(s.config.Addr, p.Port))
}

// Delays after a failure to accept a connection, as in package net/http.
const (
	firstAcceptDelay = 5 * time.Millisecond
	lastAcceptDelay  = time.Second
)

// accept serves the connections to a port until it is closed. After a failure
// to accept, in most cases because the process has no free file descriptor, it
// waits: the failed connection is still in the queue, and the next attempt
// would fail at once.
func (s *Server) accept(p *nodePort, port uint16, l net.Listener) {
	delay := time.Duration(0)
	for {
		client, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err == nil {
			delay = 0
			c := &connection{client: client.(*net.TCPConn)}
			c.life, c.end = context.WithCancel(s.life)
			c.place = s.config.Limit.Add(port, func() { s.replace(c) })
			go s.serve(p, c)
			continue
		}
		if delay == 0 {
			klog.ErrorS(err, "Failed to accept connections to a NodePort, retrying", "address", l.Addr())
		}
		delay = min(max(2*delay, firstAcceptDelay), lastAcceptDelay)
		time.Sleep(delay)
	}
}
