package healthcheck

import (
	"context"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"k8s.io/klog/v2"
)

// Limits for clients. A health check is one small request. Load balancers
// that keep the connection send a request every few seconds.
const (
	readTimeout    = 10 * time.Second
	writeTimeout   = 10 * time.Second
	idleTimeout    = 2 * time.Minute
	maxHeaderBytes = 16 << 10
)

// newServer returns a server that limits the time for requests. It does not
// limit the time for responses, because profiles take long.
func newServer(handler http.Handler) *http.Server {
	return &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: readTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          klog.NewStandardLogger("WARNING"),
	}
}

// newCheckServer returns a server for untrusted clients. It also limits the
// time for responses.
func newCheckServer(handler http.Handler) *http.Server {
	server := newServer(handler)
	server.ReadTimeout, server.WriteTimeout = readTimeout, writeTimeout
	return server
}

// listener serves one socket.
type listener struct {
	socket   net.Listener
	server   *http.Server
	stopping atomic.Bool
	err      atomic.Pointer[error] // set if serving failed before stop was called
	served   chan struct{}         // closed when serving has ended
}

// startListener serves requests on socket. It calls onFailure if serving ends
// before stop is called.
func startListener(socket net.Listener, server *http.Server, onFailure func()) *listener {
	l := &listener{socket: socket, server: server, served: make(chan struct{})}
	go func() {
		defer close(l.served)
		if err := l.server.Serve(socket); !l.stopping.Load() {
			l.err.Store(&err)
			onFailure()
		}
	}()
	return l
}

// stop closes the port before it returns. Current requests may take as long
// as timeout. The channel is closed when all of them have ended.
func (l *listener) stop(timeout time.Duration) <-chan struct{} {
	l.stopping.Store(true)
	l.socket.Close()
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		ctx, cancel := context.WithTimeout(context.Background(), timeout)
		defer cancel()
		l.server.Shutdown(ctx) // fails if the socket is closed, or at the timeout
		l.server.Close()
		<-l.served
	}()
	return drained
}
