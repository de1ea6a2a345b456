package healthcheck

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/pprof"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/healthcheck/connlimit"
	"github.com/nftproxy/nftproxy/test/must"
)

// dial connects to a port from an address of the loopback interface.
func (ns namespace) dial(t *testing.T, from string, port uint16) net.Conn {
	t.Helper()
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	var conn net.Conn
	var err error
	ns.Do(func() { conn, err = dialer.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port)) })
	must.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(10 * time.Second))
	return conn
}

const getRequest = "GET / HTTP/1.1\r\nHost: x\r\n\r\n"

// request sends a request and returns the response without its body.
func request(t *testing.T, conn net.Conn, text string) *http.Response {
	t.Helper()
	io.WriteString(conn, text)
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatalf("request %q from %v: %v", text, conn.LocalAddr(), err)
	}
	io.Copy(io.Discard, resp.Body)
	return resp
}

// awaitClosed waits until the server closes a connection.
func awaitClosed(t *testing.T, conn net.Conn) {
	t.Helper()
	if _, err := io.Copy(io.Discard, conn); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatal("the connection is open, want closed")
	}
}

// Clients that hold more connections than the limit lose those that are idle
// the longest. A probe is answered, from their own source, too, and a client
// from another source keeps its connection.
func TestConnectionLimit(t *testing.T) {
	const limit, held, probed = 8, 31001, 31002
	ns := newNamespace(t)
	web := newHTTPServer(ns, fmt.Sprintf("127.0.0.1:%d", held), true)
	web.limit = connlimit.New[netip.Prefix]("test", limit)
	start(t, web)
	checks := newNode(t)
	checks.server().limit = connlimit.New[netip.Prefix]("test", limit)
	for _, port := range []uint16{held, probed} {
		checks.server().SetService(Service{Namespace: "ns", Name: fmt.Sprint(port), Port: port, LocalEndpoints: 1})
		must.NoError(t, checks.await(fmt.Sprintf("127.0.0.1:%d", port), "200"))
	}
	for name, tc := range map[string]struct {
		ns     namespace
		probed uint16
	}{"HTTPServer": {ns, held}, "ServiceServer": {checks.namespace, probed}} {
		t.Run(name, func(t *testing.T) {
			other := tc.ns.dial(t, "127.0.0.2", tc.probed)
			request(t, other, getRequest)
			var conns []net.Conn
			for i := range 3 * limit {
				conns = append(conns, tc.ns.dial(t, "127.0.0.3", held))
				if i%2 == 0 {
					io.WriteString(conns[i], "G") // an unfinished request
				}
			}
			for _, conn := range conns[:2*limit] {
				awaitClosed(t, conn)
			}
			for _, from := range []string{"127.0.0.3", "127.0.0.4"} {
				request(t, tc.ns.dial(t, from, tc.probed), getRequest)
			}
			request(t, other, getRequest)
		})
	}
}

// Connections from the same /64 are from one source.
func TestSource(t *testing.T) {
	for addr, want := range map[string]string{
		"192.0.2.1":         "192.0.2.1/32",
		"::ffff:192.0.2.1":  "192.0.2.1/32",
		"2001:db8:1:2:3::4": "2001:db8:1:2::/64",
		"fe80::1234:1%eth0": "fe80::/64",
	} {
		if got := source(netip.MustParseAddr(addr)).String(); got != want {
			t.Errorf("%s: got %s, want %s", addr, got, want)
		}
	}
}

// serverWithin serves a handler with the timeouts of newServer divided by a
// number. It returns a connection.
func serverWithin(t *testing.T, divisor time.Duration, handler http.HandlerFunc) (*http.Server, net.Conn) {
	t.Helper()
	t.Parallel()
	ns := newNamespace(t)
	socket, err := ns.listen("tcp", "127.0.0.1:31000")
	must.NoError(t, err)
	server := newServer(handler)
	for _, timeout := range []*time.Duration{
		&server.ReadHeaderTimeout, &server.ReadTimeout, &server.WriteTimeout, &server.IdleTimeout,
	} {
		*timeout /= divisor
	}
	go server.Serve(limitedListener{socket, newConnLimit("test")})
	t.Cleanup(func() { server.Close() })
	return server, ns.dial(t, "127.0.0.1", 31000)
}

// A client that stops in any phase of a request loses its connection.
func TestStalledClients(t *testing.T) {
	ignore := func(http.ResponseWriter, *http.Request) {}
	read := func(_ http.ResponseWriter, r *http.Request) { io.Copy(io.Discard, r.Body) }
	const post = "POST / HTTP/1.1\r\nHost: x\r\n"
	for name, tc := range map[string]struct {
		handler http.HandlerFunc
		send    string
	}{
		"no request":                    {ignore, ""},
		"half a header":                 {ignore, "GET / HTTP/1.1\r\nHost:"},
		"idle":                          {ignore, getRequest},
		"half a second request":         {ignore, getRequest + "GET /"},
		"half a body, ignored":          {ignore, post + "Content-Length: 9\r\n\r\n1234"},
		"half a body, read":             {read, post + "Content-Length: 9\r\n\r\n1234"},
		"half a chunk, ignored":         {ignore, post + "Transfer-Encoding: chunked\r\n\r\n9\r\n1"},
		"half a chunk, read":            {read, post + "Transfer-Encoding: chunked\r\n\r\n9\r\n1"},
		"a body that was not asked for": {ignore, post + "Expect: 100-continue\r\nContent-Length: 9\r\n\r\n"},
	} {
		t.Run(name, func(t *testing.T) {
			_, conn := serverWithin(t, 50, tc.handler)
			io.WriteString(conn, tc.send)
			awaitClosed(t, conn)
		})
	}
}

// A client that does not read a response does not hold the handler.
func TestUnreadResponse(t *testing.T) {
	ended := make(chan struct{})
	_, conn := serverWithin(t, 50, func(w http.ResponseWriter, _ *http.Request) {
		defer close(ended)
		for chunk := strings.Repeat("x", 1<<20); ; {
			if _, err := io.WriteString(w, chunk); err != nil {
				return
			}
		}
	})
	io.WriteString(conn, getRequest)
	select {
	case <-ended:
	case <-time.After(10 * time.Second):
		t.Fatal("the handler writes, want an error")
	}
}

// An unfinished body is not awaited before the response. The connection is
// closed after it.
func TestUnfinishedBody(t *testing.T) {
	ns := newNamespace(t)
	start(t, newHTTPServer(ns, "127.0.0.1:10256", true))
	for _, framing := range []string{"Content-Length: 1000000", "Content-Length: 9", "Transfer-Encoding: chunked"} {
		conn := ns.dial(t, "127.0.0.1", 10256)
		resp := request(t, conn, "POST / HTTP/1.1\r\nHost: x\r\n"+framing+"\r\n\r\n1")
		if resp.StatusCode != 200 || !resp.Close {
			t.Errorf("%s: got status %s, close %v; want 200 and close", framing, resp.Status, resp.Close)
		}
		awaitClosed(t, conn)
	}
}

// A body that is too large is not read.
func TestLargeBody(t *testing.T) {
	got := make(chan error, 1)
	_, conn := serverWithin(t, 1, func(_ http.ResponseWriter, r *http.Request) {
		_, err := io.Copy(io.Discard, r.Body)
		got <- err
	})
	go io.WriteString(conn, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100000000\r\n\r\n"+
		strings.Repeat("x", 2*maxBodyBytes))
	var tooLarge *http.MaxBytesError
	if err := <-got; !errors.As(err, &tooLarge) {
		t.Errorf("got %v, want a body that is too large", err)
	}
}

// The limits do not end a handler that takes long and sets a later write
// deadline, such as the handler of profiles.
func TestLongResponse(t *testing.T) {
	server, conn := serverWithin(t, 50, func(w http.ResponseWriter, r *http.Request) {
		pprof.Profile(w, r)
		if err := r.Context().Err(); err != nil {
			t.Errorf("the request ended while its handler was at work: %v", err)
		}
	})
	if server.ReadTimeout >= time.Second || server.WriteTimeout >= time.Second {
		t.Fatalf("timeouts %v, %v are too long for this test", server.ReadTimeout, server.WriteTimeout)
	}
	if resp := request(t, conn, "GET /?seconds=1 HTTP/1.1\r\nHost: x\r\n\r\n"); resp.StatusCode != 200 {
		t.Errorf("got status %s, want 200", resp.Status)
	}
}
