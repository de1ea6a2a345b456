package healthcheck

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"syscall"
	"time"

	"k8s.io/klog/v2"
)

// HTTPConfig configures an [HTTPServer].
type HTTPConfig struct {
	// Name is what errors and the log call the server.
	Name string

	// Field is where the operator sets Addr. Errors name it.
	Field string

	// Addr is where to listen, as net.Listen takes it with the network "tcp": 0.0.0.0 and :: both stand for all addresses of
	// both families, other addresses for themselves, a name for one of its addresses. Empty: no server.
	Addr string

	// HardFail makes Run return an error where it would otherwise try again (bindAddressHardFail).
	HardFail bool

	Handler http.Handler
}

// HTTPServer serves HTTP on one address. Listening is separate from serving, so that an address that is taken shows before anything
// else has been done.
type HTTPServer struct {
	config       HTTPConfig
	listen       func(ctx context.Context, network, address string) (net.Listener, error)
	retryDelay   time.Duration
	drainTimeout time.Duration

	mu     sync.Mutex
	socket net.Listener // that Run has not taken over yet
}

// NewHTTPServer makes a server that listens to nothing yet.
func NewHTTPServer(config HTTPConfig) *HTTPServer {
	return &HTTPServer{
		config:       config,
		listen:       new(net.ListenConfig).Listen,
		retryDelay:   5 * time.Second,
		drainTimeout: time.Second,
	}
}

// Listen opens the port in the network namespace of the calling thread, unless it is open already. Clients can connect from then on, and
// are answered by Run. The error is one line with a remedy.
func (s *HTTPServer) Listen(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.socket != nil || s.config.Addr == "" {
		return nil
	}
	socket, err := s.listen(ctx, "tcp", s.config.Addr)
	if err != nil {
		return fmt.Errorf("%s server: %w; %s", s.config.Name, err, s.remedy(err))
	}
	s.socket = socket
	return nil
}

// remedy says what an operator can do about an address that cannot be listened on.
func (s *HTTPServer) remedy(err error) string {
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return fmt.Sprintf("end the program that listens there, or set %s to another port", s.config.Field)
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return fmt.Sprintf("set %s to an address of this node", s.config.Field)
	case errors.Is(err, syscall.EACCES):
		return fmt.Sprintf("set %s to a port above 1023, or give CAP_NET_BIND_SERVICE", s.config.Field)
	}
	return fmt.Sprintf("set %s to ADDRESS:PORT", s.config.Field)
}

// take hands over what Listen opened.
func (s *HTTPServer) take() net.Listener {
	s.mu.Lock()
	defer s.mu.Unlock()
	socket := s.socket
	s.socket = nil
	return socket
}

// Run listens, unless that was done, and answers, until ctx ends; then it closes the port, ends the requests under way, and returns nil.
// What fails is logged and tried again every 5 seconds, or returned with HardFail. Call it once.
func (s *HTTPServer) Run(ctx context.Context) error {
	if s.config.Addr == "" {
		<-ctx.Done()
		return nil
	}
	for {
		err := s.serve(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if s.config.HardFail {
			return err
		}
		klog.ErrorS(err, "Server failed, trying again", "server", s.config.Name, "address", s.config.Addr, "retryAfter", s.retryDelay)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(s.retryDelay):
		}
	}
}

// serve listens and answers until that fails or ctx ends.
func (s *HTTPServer) serve(ctx context.Context) error {
	if err := s.Listen(ctx); err != nil {
		return err
	}
	socket := s.take()
	klog.V(2).InfoS("Serving", "server", s.config.Name, "address", socket.Addr())
	failed := make(chan struct{})
	l := serve(socket, newServer(s.config.Handler), func() { close(failed) })
	select {
	case <-ctx.Done():
		<-l.stop(s.drainTimeout)
		return nil
	case <-failed:
		err := *l.failed.Load()
		<-l.stop(s.drainTimeout)
		return fmt.Errorf("%s server: %w", s.config.Name, err)
	}
}
