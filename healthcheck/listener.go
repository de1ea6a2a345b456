package healthcheck

import (
	"context"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// listener serves one socket.
type listener struct {
	socket   net.Listener
	server   *http.Server
	stopping atomic.Bool
	err      atomic.Pointer[error] // set if serving failed before stop was called
	served   chan struct{}         // closed when serving has ended
}

// startListener serves requests on socket within limits. It calls onFailure if
// serving ends before stop is called.
func startListener(socket net.Listener, handler http.Handler, limit *connLimit, onFailure func()) *listener {
	l := &listener{socket: socket, server: newServer(handler), served: make(chan struct{})}
	go func() {
		defer close(l.served)
		if err := l.server.Serve(limitedListener{socket, limit}); !l.stopping.Load() {
			l.err.Store(&err)
			onFailure()
		}
	}()
	return l
}

// stop closes the port before it returns. Current requests may take as long
// as timeout. A goroutine of requests waits for all of them.
func (l *listener) stop(timeout time.Duration, requests *sync.WaitGroup) {
	l.stopping.Store(true)
	l.socket.Close()
	requests.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), timeout)
		defer cancel()
		l.server.Shutdown(ctx) // fails if the socket is closed, or at the timeout
		l.server.Close()
		<-l.served
	})
}
