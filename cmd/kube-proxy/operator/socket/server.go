package socket

import (
	"context"
	"errors"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"
)

// Server answers questions about a proxy on a unix socket.
type Server struct {
	dir        string
	namespace  uint64
	handler    *http.ServeMux
	retryDelay time.Duration
}

// NewServer returns a server for the network namespace of the calling thread.
// Run listens.
func NewServer(pages []Page) (*Server, error) {
	namespace, err := networkNamespace("/proc/thread-self")
	if err != nil {
		return nil, err
	}
	s := &Server{dir: runDir, namespace: namespace, handler: http.NewServeMux(), retryDelay: 10 * time.Second}
	for _, page := range pages {
		s.handler.HandleFunc("GET "+page.path, page.handler)
	}
	return s, nil
}

// Run serves queries until ctx ends. If it cannot listen, it logs the first
// error and tries again: the proxy works without the socket, and another proxy
// may be about to end.
func (s *Server) Run(ctx context.Context) {
	failed := false
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		if err := s.serve(ctx); ctx.Err() == nil && !failed {
			klog.InfoS("The command nftproxy cannot ask this proxy, retrying", "err", err, "retryAfter", s.retryDelay)
			failed = true
		}
	}, s.retryDelay)
}

// serve serves queries until ctx ends or it fails.
func (s *Server) serve(ctx context.Context) error {
	l, err := listen(s.dir, s.namespace)
	if err != nil {
		return err
	}
	klog.V(2).InfoS("Started serving the command nftproxy", "socket", l.path())
	server := &http.Server{
		Handler:           s.handler,
		ReadHeaderTimeout: 5 * time.Second,
		IdleTimeout:       10 * time.Second,
		ErrorLog:          klog.NewStandardLogger("WARNING"),
	}
	stop := context.AfterFunc(ctx, func() { server.Close() })
	defer stop()
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return errors.Join(err, l.Close())
	}
	return nil
}
