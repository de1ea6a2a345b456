package healthcheck

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// newHTTPServer makes a server in a namespace.
func newHTTPServer(ns namespace, addr string, hardFail bool) *HTTPServer {
	s := NewHTTPServer(HTTPConfig{
		Name: "test", Field: "testBindAddress", Addr: addr, HardFail: hardFail,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "here") }),
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

// ask asks at an address, within the namespace.
func (ns namespace) ask(addr string) error {
	resp, err := ns.client().Get("http://" + addr + "/")
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

// awaitAnswer waits for an answer.
func (ns namespace) awaitAnswer(t *testing.T, addr string) {
	t.Helper()
	eventually(t, "an answer at "+addr, func() (bool, any) {
		err := ns.ask(addr)
		return err == nil, err
	})
}

// The addresses of kube-proxy's configuration mean what they mean there: an unspecified one of either family stands for both.
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
		ns.addAddr(t, netip.MustParseAddr("192.0.2.1"))
		ns.addAddr(t, netip.MustParseAddr("fd01::1"))
		s := newHTTPServer(ns, tc.addr, true)
		if err := s.Listen(context.Background()); err != nil {
			t.Fatal(err)
		}
		stop := start(t, s)
		for _, addr := range all {
			want := slices.Contains(tc.served, addr) // an address that was just added takes a moment
			eventually(t, fmt.Sprintf("listening on %s: an answer at %s is %v", tc.addr, addr, want), func() (bool, any) {
				err := ns.ask(addr + ":10256")
				return err == nil && want || errors.Is(err, syscall.ECONNREFUSED) && !want, err
			})
		}
		if err := stop(); err != nil {
			t.Error(err)
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
			"end the program that listens there, or set testBindAddress to another port",
		"192.0.2.9:10256": "test server: listen tcp 192.0.2.9:10256: bind: cannot assign requested address; " +
			"set testBindAddress to an address of this node",
		"127.0.0.1": "test server: listen tcp: address 127.0.0.1: missing port in address; set testBindAddress to ADDRESS:PORT",
	} {
		s := newHTTPServer(ns, addr, true)
		if err := s.Listen(context.Background()); err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", addr, err, want)
		}
		if err := s.Run(context.Background()); err == nil || err.Error() != want {
			t.Errorf("%s: Run: %v, want %s", addr, err, want)
		}
	}
}

// What cannot be listened on is tried until it can be.
func TestListenLater(t *testing.T) {
	ns := newNamespace(t)
	other, err := ns.listen("tcp", "127.0.0.1:10256")
	if err != nil {
		t.Fatal(err)
	}
	tries := make(chan struct{}, 1000)
	s := newHTTPServer(ns, "127.0.0.1:10256", false)
	listen := s.listen
	s.listen = func(ctx context.Context, network, address string) (net.Listener, error) {
		tries <- struct{}{}
		return listen(ctx, network, address)
	}
	start(t, s)
	for range 3 {
		<-tries
	}
	other.Close()
	ns.awaitAnswer(t, "127.0.0.1:10256")
}

// A listener that dies is opened again, or ends the server where it is to fail hard.
func TestServerDies(t *testing.T) {
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
		ns.awaitAnswer(t, "127.0.0.1:10256")
		l.Close()
		if hardFail {
			if err := <-done; err == nil || !strings.HasPrefix(err.Error(), "test server: accept") {
				t.Errorf("Run: %v", err)
			}
			cancel()
			continue
		}
		<-opened
		ns.awaitAnswer(t, "127.0.0.1:10256")
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// Listening twice is listening once; what connects before Run is answered by it.
func TestListenBeforeRun(t *testing.T) {
	ns := newNamespace(t)
	s := newHTTPServer(ns, "127.0.0.1:10256", true)
	for range 2 {
		if err := s.Listen(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	var conn net.Conn
	ns.do(func() {
		var err error
		if conn, err = net.Dial("tcp", "127.0.0.1:10256"); err != nil {
			t.Fatal(err)
		}
	})
	defer conn.Close()
	fmt.Fprint(conn, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	start(t, s)
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil || resp.StatusCode != 200 {
		t.Errorf("%v, %v", resp, err)
	}
}

// Without an address there is no server, and no error.
func TestNoAddress(t *testing.T) {
	s := NewHTTPServer(HTTPConfig{})
	s.listen = nil
	if err := s.Listen(context.Background()); err != nil {
		t.Error(err)
	}
	if err := start(t, s)(); err != nil {
		t.Error(err)
	}
}
