package healthcheck

import (
	"net"
	"net/http"
	"net/netip"
	"time"

	"k8s.io/klog/v2"

	"github.com/nftproxy/nftproxy/healthcheck/connlimit"
)

// Limits for clients of all servers. A health check is one small request. Load
// balancers that keep the connection send a request every few seconds.
const (
	readTimeout    = 10 * time.Second
	writeTimeout   = 30 * time.Second // also for the handler: metrics of many services take seconds
	idleTimeout    = 2 * time.Minute
	maxHeaderBytes = 16 << 10
	maxBodyBytes   = 1 << 20

	// maxConns is the limit of connections of a server. An idle connection
	// takes 20 kB.
	maxConns = 256
	// connShare is the part of the open files that the connections of a server
	// may take: all four servers of a proxy together may take a quarter.
	connShare = 16
)

// newServer returns a server that limits the time for each phase of a request.
// A handler whose response takes longer than writeTimeout sets a later write
// deadline.
func newServer(handler http.Handler) *http.Server {
	return &http.Server{
		Handler:           limitBody(handler),
		ReadHeaderTimeout: readTimeout,
		ReadTimeout:       readTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          klog.NewStandardLogger("WARNING"),
		ConnState: func(conn net.Conn, _ http.ConnState) {
			conn.(*limitedConn).place.Use()
		},
	}
}

// limitBody returns a handler that reads a body up to maxBodyBytes, and closes
// the connection instead of reading what is left of it.
func limitBody(handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength != 0 {
			w.Header().Set("Connection", "close")
			r.Body = http.MaxBytesReader(w, r.Body, maxBodyBytes)
			defer http.NewResponseController(w).SetReadDeadline(time.Unix(1, 0))
		}
		handler.ServeHTTP(w, r)
	})
}

// connLimit limits the connections of a server. Connections from one source
// are a group, so that a source with many connections keeps no other one out.
// A new connection is never refused: a probe on a new connection succeeds
// however many connections others hold, even from the same source.
type connLimit = connlimit.Limit[netip.Prefix]

func newConnLimit(name string) *connLimit {
	return connlimit.New[netip.Prefix](name, min(maxConns, connlimit.OpenFiles()/connShare))
}

// source returns an IPv4 address or the /64 of an IPv6 address: one host can
// have all addresses of a /64.
func source(addr netip.Addr) netip.Prefix {
	addr = addr.Unmap()
	source, _ := addr.Prefix(min(addr.BitLen(), 64))
	return source
}

// limitedListener accepts connections within a limit.
type limitedListener struct {
	net.Listener
	limit *connLimit
}

func (l limitedListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &limitedConn{TCPConn: conn.(*net.TCPConn)}
	addr := c.RemoteAddr().(*net.TCPAddr).AddrPort().Addr()
	c.place = l.limit.Add(source(addr), func() { c.TCPConn.Close() })
	return c, nil
}

// limitedConn is a connection that has a place in a limit.
type limitedConn struct {
	*net.TCPConn
	place *connlimit.Conn[netip.Prefix]
}

func (c *limitedConn) Close() error {
	c.place.Release()
	return c.TCPConn.Close()
}
