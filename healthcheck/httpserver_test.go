package healthcheck

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// newHTTPServer returns a server that listens in a namespace.
func newHTTPServer(ns namespace, addr string, hardFail bool) *HTTPServer {
	s := NewHTTPServer(HTTPConfig{
		Name: "test", Field: "testBindAddress", Addr: addr, HardFail: hardFail,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "ok") }),
	})
	s.listen = func(_ context.Context, network, address string) (net.Listener, error) {
		return ns.listen(network, address)
	}
	s.retryDelay = 10 * time.Millisecond
	return s
}

// start runs a server until the test ends, or stop is called.
func start(t *testing.T, s *HTTPServer) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	stop = func() error {
		cancel()
		err := <-done
		done <- err
		return err
	}
	t.Cleanup(func() { stop() })
	return stop
}

// get sends a request to an address in the namespace.
func (ns namespace) get(addr string) error {
	resp, err := ns.client().Get("http://" + addr + "/")
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

// awaitResponse waits for a response.
func (ns namespace) awaitResponse(t *testing.T, addr string) {
	t.Helper()
	eventually(t, "a response from "+addr, func() (bool, any) {
		err := ns.get(addr)
		return err == nil, err
	})
}

// As in kube-proxy, the unspecified address of either family stands for all
// addresses of both.
func TestListenAddresses(t *testing.T) {
	all := []string{"127.0.0.1", "[::1]", "192.0.2.1", "[fd01::1]"}
	for _, tc := range []struct {
		addr   string
		served []string
	}{
		{"0.0.0.0:10256", all},
		{"[::]:10256", all},
		{":10256", all},
		{"127.0.0.1:10256", all[:1]},
		{"[::1]:10256", all[1:2]},
		{"192.0.2.1:10256", all[2:3]},
		{"[fd01::1]:10256", all[3:]},
	} {
		ns := newNamespace(t)
		ns.addAddr(t, "192.0.2.1")
		ns.addAddr(t, "fd01::1")
		s := newHTTPServer(ns, tc.addr, true)
		if err := s.Listen(context.Background()); err != nil {
			t.Fatal(err)
		}
		stop := start(t, s)
		for _, addr := range all {
			want := slices.Contains(tc.served, addr)
			err := ns.get(addr + ":10256")
			if want && err != nil || !want && !errors.Is(err, syscall.ECONNREFUSED) {
				t.Errorf("server on %s, request to %s: got %v, want a response: %v", tc.addr, addr, err, want)
			}
		}
		if err := stop(); err != nil {
			t.Errorf("got Run error %v, want none", err)
		}
		ns.awaitFree(t, 10256)
	}
}

func TestListenErrors(t *testing.T) {
	ns := newNamespace(t)
	other, err := ns.listen("tcp", "127.0.0.1:10256")
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	for addr, want := range map[string]string{
		"127.0.0.1:10256": "test server: listen tcp 127.0.0.1:10256: bind: address already in use; " +
			"stop the program that listens there, or set testBindAddress to another port",
		"192.0.2.9:10256": "test server: listen tcp 192.0.2.9:10256: bind: cannot assign requested address; " +
			"set testBindAddress to an address of this node",
		"127.0.0.1": "test server: listen tcp: address 127.0.0.1: missing port in address; " +
			"set testBindAddress to ADDRESS:PORT",
	} {
		s := newHTTPServer(ns, addr, true)
		if err := s.Listen(context.Background()); err == nil || err.Error() != want {
			t.Errorf("%s: Listen: got %v, want %s", addr, err, want)
		}
		if err := s.Run(context.Background()); err == nil || err.Error() != want {
			t.Errorf("%s: Run: got %v, want %s", addr, err, want)
		}
	}
}

// Run retries until the port is free.
func TestRunRetriesListen(t *testing.T) {
	ns := newNamespace(t)
	other, err := ns.listen("tcp", "127.0.0.1:10256")
	if err != nil {
		t.Fatal(err)
	}
	attempts := make(chan struct{}, 1000)
	s := newHTTPServer(ns, "127.0.0.1:10256", false)
	listen := s.listen
	s.listen = func(ctx context.Context, network, address string) (net.Listener, error) {
		attempts <- struct{}{}
		return listen(ctx, network, address)
	}
	start(t, s)
	for range 3 {
		<-attempts
	}
	other.Close()
	ns.awaitResponse(t, "127.0.0.1:10256")
}

// After a failure of its socket, Run listens again. With HardFail, it returns
// the error.
func TestRunAfterSocketFails(t *testing.T) {
	for _, hardFail := range []bool{false, true} {
		ns := newNamespace(t)
		opened := make(chan net.Listener, 10)
		s := newHTTPServer(ns, "127.0.0.1:10256", hardFail)
		s.listen = func(_ context.Context, network, address string) (net.Listener, error) {
			l, err := ns.listen(network, address)
			opened <- l
			return l, err
		}
		done := make(chan error, 1)
		ctx, cancel := context.WithCancel(context.Background())
		go func() { done <- s.Run(ctx) }()
		l := <-opened
		ns.awaitResponse(t, "127.0.0.1:10256")
		l.Close()
		if hardFail {
			if err := <-done; err == nil || !strings.HasPrefix(err.Error(), "test server: accept") {
				t.Errorf("got Run error %v, want one of accept", err)
			}
			cancel()
			continue
		}
		<-opened
		ns.awaitResponse(t, "127.0.0.1:10256")
		cancel()
		if err := <-done; err != nil {
			t.Errorf("got Run error %v, want none", err)
		}
	}
}

// A second call of Listen has no effect. Run serves the clients that
// connected before.
func TestListenBeforeRun(t *testing.T) {
	ns := newNamespace(t)
	s := newHTTPServer(ns, "127.0.0.1:10256", true)
	for range 2 {
		if err := s.Listen(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	conn := ns.awaitConn(t, 10256)
	fmt.Fprint(conn, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	start(t, s)
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil || resp.StatusCode != 200 {
		t.Errorf("got %v, %v, want status 200", resp, err)
	}
}

// Without an address, the server does nothing.
func TestHTTPServerWithoutAddr(t *testing.T) {
	s := NewHTTPServer(HTTPConfig{})
	s.listen = nil
	if err := s.Listen(context.Background()); err != nil {
		t.Errorf("got Listen error %v, want none", err)
	}
	if err := start(t, s)(); err != nil {
		t.Errorf("got Run error %v, want none", err)
	}
}
