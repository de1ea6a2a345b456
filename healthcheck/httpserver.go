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
	// Name is the name of the server in errors and in the log.
	Name string

	// Field is the configuration field of Addr. Errors name it.
	Field string

	// Addr is the address to listen on, in the format of net.Listen with the
	// network "tcp". 0.0.0.0 and :: both stand for all addresses of both
	// families. If Addr is empty, the server does nothing.
	Addr string

	// HardFail makes Run return the first error instead of retrying
	// (bindAddressHardFail).
	HardFail bool

	Handler http.Handler
}

// HTTPServer serves HTTP on one address. Listen is separate from Run, so
// that a command can detect an address in use when it starts.
type HTTPServer struct {
	config       HTTPConfig
	listen       func(ctx context.Context, network, address string) (net.Listener, error)
	retryDelay   time.Duration
	drainTimeout time.Duration
	limit        *connLimit
	socket       net.Listener // opened by Listen; nil while Run serves it
}

// NewHTTPServer returns a server. It does not listen until Listen or Run is
// called.
func NewHTTPServer(config HTTPConfig) *HTTPServer {
	return &HTTPServer{
		config:       config,
		listen:       new(net.ListenConfig).Listen,
		retryDelay:   5 * time.Second,
		drainTimeout: time.Second,
		limit:        newConnLimit(config.Name),
	}
}

// Listen opens the port in the network namespace of the calling thread,
// unless the port is already open. Clients can then connect, and Run serves
// them. An error is one line that names a remedy. It must not be called after
// Run.
func (s *HTTPServer) Listen(ctx context.Context) error {
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

// remedy returns how an operator can resolve an error of Listen.
func (s *HTTPServer) remedy(err error) string {
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return fmt.Sprintf("stop the program that listens there, or set %s to another port", s.config.Field)
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return fmt.Sprintf("set %s to an address of this node", s.config.Field)
	case errors.Is(err, syscall.EACCES):
		return fmt.Sprintf("set %s to a port above 1023, or add the capability CAP_NET_BIND_SERVICE", s.config.Field)
	}
	return fmt.Sprintf("set %s to ADDRESS:PORT", s.config.Field)
}

// Run calls Listen and serves requests until ctx ends. It then closes the
// port, waits up to 1 s for current requests, and returns nil. After an
// error, it retries every 5 s, unless HardFail is set. It must be called
// only once.
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
		klog.ErrorS(err, "Failed to serve HTTP, retrying",
			"server", s.config.Name, "address", s.config.Addr, "retryAfter", s.retryDelay)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(s.retryDelay):
		}
	}
}

// serve serves requests until it fails or ctx ends.
func (s *HTTPServer) serve(ctx context.Context) error {
	if err := s.Listen(ctx); err != nil {
		return err
	}
	socket := s.socket
	s.socket = nil
	klog.V(2).InfoS("Started serving HTTP", "server", s.config.Name, "address", socket.Addr())
	failed := make(chan struct{})
	l := startListener(socket, s.config.Handler, s.limit, func() { close(failed) })
	select {
	case <-ctx.Done():
	case <-failed:
	}
	var requests sync.WaitGroup
	l.stop(s.drainTimeout, &requests)
	requests.Wait()
	if err := l.err.Load(); err != nil {
		return fmt.Errorf("%s server: %w", s.config.Name, *err)
	}
	return nil
}
