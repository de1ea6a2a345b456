package healthcheck

import (
	"context"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"k8s.io/klog/v2"
)

// Limits for clients. A check is one small request, and balancers that keep the connection ask every few seconds.
const (
	readTimeout    = 10 * time.Second
	writeTimeout   = 10 * time.Second
	idleTimeout    = 2 * time.Minute
	maxHeaderBytes = 16 << 10
)

// newServer limits what clients can hold up before they have asked. Answers may take their time, as profiles do.
func newServer(handler http.Handler) *http.Server {
	return &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: readTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          klog.NewStandardLogger("WARNING"),
	}
}

// newCheckServer is for health checks, whose clients are anybody: it also limits how long an answer takes.
func newCheckServer(handler http.Handler) *http.Server {
	server := newServer(handler)
	server.ReadTimeout, server.WriteTimeout = readTimeout, writeTimeout
	return server
}

// listener serves one binding.
type listener struct {
	socket   net.Listener
	server   *http.Server
	stopping atomic.Bool
	failed   atomic.Pointer[error] // why it ended, if nobody stopped it
	served   chan struct{}         // closed when it has ended
}

// serve answers what comes to socket. onFailure is called if that ends though nobody stopped it.
func serve(socket net.Listener, server *http.Server, onFailure func()) *listener {
	l := &listener{socket: socket, server: server, served: make(chan struct{})}
	go func() {
		defer close(l.served)
		if err := l.server.Serve(socket); !l.stopping.Load() {
			l.failed.Store(&err)
			onFailure()
		}
	}()
	return l
}

// stop frees the port before it returns. Requests under way are answered, for as long as timeout; the channel is closed
// when nothing is left.
func (l *listener) stop(timeout time.Duration) <-chan struct{} {
	l.stopping.Store(true)
	l.socket.Close()
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		ctx, cancel := context.WithTimeout(context.Background(), timeout)
		defer cancel()
		l.server.Shutdown(ctx) // its errors are that the socket is closed, or the timeout
		l.server.Close()
		<-l.served
	}()
	return drained
}
