package localhost

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nftproxy/nftproxy/healthcheck/connlimit"
	"github.com/nftproxy/nftproxy/test/lab/labtest"
	"github.com/nftproxy/nftproxy/test/lab/nstest"
	"github.com/nftproxy/nftproxy/test/must"
)

const patience = 20 * time.Second

// fixture is a running Server in a network namespace of its own.
type fixture struct {
	*Server
	t      testing.TB
	ns     nstest.Namespace
	events chan Event
}

func newLimit(n int) *connlimit.Limit[uint16] { return connlimit.New[uint16]("test", n) }

// newFixture returns a Server for an address after change modified it. It runs
// until the test ends.
func newFixture(t testing.TB, addr string, change func(*Server)) *fixture {
	t.Helper()
	f := &fixture{t: t, ns: nstest.New(t), events: make(chan Event, 100)}
	var err error
	f.Server, err = New(Config{
		Addr: netip.MustParseAddr(addr), Limit: newLimit(1 << 20), Report: func(e Event) { f.events <- e },
	})
	must.NoError(t, err)
	f.Server.listen = func(at netip.AddrPort) (l net.Listener, err error) {
		f.ns.Do(func() { l, err = listen(at) })
		return l, err
	}
	f.Server.dial = func(ctx context.Context, to netip.AddrPort) (c net.Conn, err error) {
		f.ns.Do(func() { c, err = dial(ctx, to) })
		return c, err
	}
	if change != nil {
		change(f.Server)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var run sync.WaitGroup
	run.Go(func() { f.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		run.Wait()
	})
	return f
}

// endpoint is a server of an endpoint. It accepts connections into conns.
type endpoint struct {
	at    netip.AddrPort
	conns chan *net.TCPConn
}

func (f *fixture) endpoint() *endpoint {
	f.t.Helper()
	l, err := f.Server.listen(netip.AddrPortFrom(f.config.Addr, 0))
	must.NoError(f.t, err)
	f.t.Cleanup(func() { l.Close() })
	e := &endpoint{netip.MustParseAddrPort(l.Addr().String()), make(chan *net.TCPConn, 20_000)}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			e.conns <- c.(*net.TCPConn)
		}
	}()
	return e
}

const testPort = 30080

// serve sets the NodePort with these targets, and waits until it is open.
func (f *fixture) serve(affinity time.Duration, endpoints ...*endpoint) {
	f.t.Helper()
	n := NodePort{Port: testPort, Namespace: "ns", Name: "web", ServicePort: "ns/web:http", Affinity: affinity}
	for _, e := range endpoints {
		n.Targets = append(n.Targets, e.at)
	}
	f.Set(n)
	f.awaitListeners(1)
}

func (f *fixture) awaitListeners(n int) {
	f.t.Helper()
	labtest.Eventually(f.t, patience, "open ports", func() error {
		if got := f.Stats().Listeners; got != n {
			return fmt.Errorf("got %d, want %d", got, n)
		}
		return nil
	})
}

// connect connects to the NodePort.
func (f *fixture) connect() *net.TCPConn {
	f.t.Helper()
	c, err := f.connectTo(testPort)
	must.NoError(f.t, err)
	return c
}

func (f *fixture) connectTo(port uint16) (*net.TCPConn, error) {
	c, err := f.Server.dial(f.t.Context(), netip.AddrPortFrom(f.config.Addr, port))
	if err != nil {
		return nil, err
	}
	f.t.Cleanup(func() { c.Close() })
	return c.(*net.TCPConn), c.SetDeadline(time.Now().Add(patience))
}

// next returns the next connection that the endpoint accepts.
func (e *endpoint) next(t testing.TB) *net.TCPConn {
	t.Helper()
	select {
	case c := <-e.conns:
		t.Cleanup(func() { c.Close() })
		c.SetDeadline(time.Now().Add(patience))
		return c
	case <-time.After(patience):
		t.Fatal("the endpoint gets no connection")
		return nil
	}
}

// pair returns both ends of a connection through the NodePort, which passes
// bytes: the server has finished connecting to the endpoint.
func (f *fixture) pair(e *endpoint) (client, server *net.TCPConn) {
	f.t.Helper()
	client, server = f.connect(), e.next(f.t)
	must.NoError(f.t, passByte(client, server))
	return client, server
}

// passByte sends a byte and waits until the other end has it.
func passByte(from, to net.Conn) error {
	_, err := io.WriteString(from, "x")
	if err == nil {
		_, err = io.ReadFull(to, make([]byte, 1))
	}
	return err
}

// isBroken returns an error unless an end is reset. After the other direction
// ended, reading does not find a reset, and writing does.
func isBroken(c net.Conn) error {
	_, err := io.Copy(io.Discard, c)
	for deadline := time.Now().Add(patience); err == nil && time.Now().Before(deadline); {
		_, err = c.Write([]byte("y"))
	}
	if !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, syscall.EPIPE) {
		return fmt.Errorf("got %w, want a reset", err)
	}
	return nil
}

// count returns the number of connections.
func (f *fixture) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.connections)
}

func (f *fixture) awaitConnections(n int) {
	f.t.Helper()
	labtest.Eventually(f.t, patience, "connections", func() error {
		if got := f.count(); got != n {
			return fmt.Errorf("got %d, want %d", got, n)
		}
		return nil
	})
}

// Connections use all endpoints at random. Many are open at the same time, and
// pass their own bytes.
func TestEndpoints(t *testing.T) {
	t.Parallel()
	const n = 1000
	f := newFixture(t, "127.0.0.1", nil)
	a, b := f.endpoint(), f.endpoint()
	f.serve(0, a, b)
	var clients []*net.TCPConn
	for range n {
		clients = append(clients, f.connect())
	}
	f.awaitConnections(n)
	atA := 0
	for range n {
		select {
		case server := <-a.conns:
			atA++
			go io.Copy(server, server)
		case server := <-b.conns:
			go io.Copy(server, server)
		}
	}
	if atA < n/3 || atA > n*2/3 {
		t.Errorf("got %d of %d connections at an endpoint, want about half", atA, n)
	}
	one := make([]byte, 1)
	for i, c := range clients {
		io.WriteString(c, string(rune('a'+i%26)))
		if _, err := io.ReadFull(c, one); err != nil || one[0] != byte('a'+i%26) {
			t.Fatalf("connection %d: got %q, %v", i, one, err)
		}
	}
}

// With session affinity, connections use the endpoint of the last one, until
// the timeout, or until the endpoint is removed.
func TestAffinity(t *testing.T) {
	at := func(s string) netip.AddrPort { return netip.MustParseAddrPort(s) }
	a, b := at("10.0.0.1:80"), at("10.0.0.2:80")
	s, err := New(Config{Addr: netip.MustParseAddr("127.0.0.1"), Limit: newLimit(1)})
	must.NoError(t, err)
	set := func(timeout time.Duration, targets ...netip.AddrPort) {
		s.Set(NodePort{Port: testPort, ServicePort: "ns/web", Targets: targets, Affinity: timeout})
	}
	now := time.Unix(1000, 0)
	// distinct returns the number of endpoints of 100 connections with pauses.
	distinct := func(pause time.Duration) int {
		seen := make(map[netip.AddrPort]bool)
		for range 100 {
			now = now.Add(pause)
			seen[s.ports[testPort].choose(now)] = true
		}
		return len(seen)
	}
	s.now = func() time.Time { return now }
	if state := s.State(testPort); len(state.Targets) != 0 {
		t.Errorf("unknown port: got state %+v", state)
	}
	set(time.Minute, a, b)
	if state := s.State(testPort); len(state.Targets) != 2 || state.Pinned.IsValid() {
		t.Errorf("before the first connection: got state %+v", state)
	}
	if pinned := s.ports[testPort].choose(now); s.State(testPort).Pinned != pinned {
		t.Errorf("got state %+v, want pinned to %v", s.State(testPort), pinned)
	}
	if n := distinct(59 * time.Second); n != 1 {
		t.Errorf("within the timeout: got %d endpoints, want 1", n)
	}
	if n := distinct(time.Minute); n != 2 {
		t.Errorf("after the timeout: got %d endpoints, want 2", n)
	}
	pinned := s.ports[testPort].choose(now)
	other := map[netip.AddrPort]netip.AddrPort{a: b, b: a}[pinned]
	set(time.Minute, other)
	if got := s.ports[testPort].choose(now); got != other {
		t.Errorf("after the endpoint was removed: got %v, want %v", got, other)
	}
	set(time.Minute, a, b)
	if got := s.ports[testPort].choose(now); got != other {
		t.Errorf("after the endpoint returned: got %v, want %v", got, other)
	}
	seen := make(map[netip.AddrPort]bool)
	for i := range 100 {
		set(time.Minute+time.Duration(i), a, b)
		seen[s.ports[testPort].choose(now)] = true
	}
	if len(seen) != 2 {
		t.Errorf("with other timeouts: got endpoints %v, want both", seen)
	}
}

// failingListener fails to accept as often as failures.
type failingListener struct {
	net.Listener
	failures int
	attempts []time.Time
}

func (l *failingListener) Accept() (net.Conn, error) {
	l.attempts = append(l.attempts, time.Now())
	if l.failures--; l.failures >= 0 {
		return nil, syscall.EMFILE
	}
	return nil, net.ErrClosed
}

func (*failingListener) Addr() net.Addr { return &net.TCPAddr{} }

// If the process has no free file descriptor, the attempts to accept become
// less frequent.
func TestAcceptFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := New(Config{Addr: netip.MustParseAddr("127.0.0.1"), Limit: newLimit(1)})
		must.NoError(t, err)
		l := &failingListener{failures: 10}
		s.accept(&nodePort{}, testPort, l)
		for i, want := range []time.Duration{5, 10, 20, 40, 80, 160, 320, 640, 1000, 1000} {
			if got := l.attempts[i+1].Sub(l.attempts[i]); got != want*time.Millisecond {
				t.Errorf("attempt %d: got a delay of %v, want %v", i+2, got, want*time.Millisecond)
			}
		}
	})
}
