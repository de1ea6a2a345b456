package healthcheck

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/netip"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/test/lab/nstest"
)

// namespace is a network namespace, in which all ports are free.
type namespace struct {
	nstest.Namespace
}

func newNamespace(t testing.TB) namespace {
	t.Helper()
	return namespace{nstest.New(t)}
}

func (ns namespace) addAddr(t testing.TB, addr string) {
	t.Helper()
	a := netip.MustParseAddr(addr)
	ns.AddAddr(t, "lo", a, a.BitLen())
}

func (ns namespace) listen(network, address string) (l net.Listener, err error) {
	ns.Do(func() { l, err = net.Listen(network, address) })
	return l, err
}

// client returns a client in the namespace that uses a connection per
// request.
func (ns namespace) client() *http.Client {
	return &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: ns.DialContext}}
}

// newHTTPServer returns a server that listens in a namespace.
func newHTTPServer(ns namespace, addr string, hardFail bool) *HTTPServer {
	s := NewHTTPServer(HTTPConfig{
		Name: "test", Field: "testBindAddress", Addr: addr, HardFail: hardFail,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "ok") }),
	})
	s.listen = func(_ context.Context, network, address string) (net.Listener, error) {
		return ns.listen(network, address)
	}
	s.retryDelay = 10 * time.Millisecond
	return s
}

// start opens the port of a server and runs it until the test ends.
func start(t *testing.T, s *HTTPServer) {
	t.Helper()
	if err := s.Listen(t.Context()); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- s.Run(t.Context()) }()
	t.Cleanup(func() {
		if err := <-done; err != nil {
			t.Errorf("got Run error %v, want none", err)
		}
	})
}
