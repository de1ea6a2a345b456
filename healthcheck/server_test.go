package healthcheck

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// node is a ServiceServer that runs in a namespace of its own.
type node struct {
	namespace
	*ServiceServer
	healthy atomic.Bool

	mu     sync.Mutex
	events []Event
}

func newNode(t *testing.T) *node {
	t.Helper()
	return newNodeWithDelays(t, time.Millisecond, 10*time.Millisecond)
}

func newNodeWithDelays(t *testing.T, minDelay, maxDelay time.Duration) *node {
	t.Helper()
	n := &node{namespace: newNamespace(t)}
	n.healthy.Store(true)
	s, err := NewServiceServer(Config{
		NodeName: "worker",
		Healthy:  n.healthy.Load,
		Report: func(e Event) {
			n.mu.Lock()
			defer n.mu.Unlock()
			n.events = append(n.events, e)
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	s.listen = n.namespace.listen
	s.minDelay, s.maxDelay = minDelay, maxDelay
	n.ServiceServer = s
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	return n
}

func (n *node) reported() []Event {
	n.mu.Lock()
	defer n.mu.Unlock()
	return append([]Event(nil), n.events...)
}

// get asks at an address until the status is as wanted, and returns the last answer.
func (n *node) get(t *testing.T, addr string, port uint16, want int) (*http.Response, string) {
	t.Helper()
	var resp *http.Response
	var body string
	eventually(t, fmt.Sprintf("status %d at %s", want, addr), func() (ok bool, state any) {
		r, err := n.client().Get("http://" + net.JoinHostPort(addr, fmt.Sprint(port)) + "/any/path?x=1")
		if err != nil {
			return false, err
		}
		defer r.Body.Close()
		b, err := io.ReadAll(r.Body)
		if err != nil {
			return false, err
		}
		resp, body = r, string(b)
		return r.StatusCode == want, r.Status
	})
	return resp, body
}

// refuses waits until nothing listens at an address.
func (n *node) refuses(t *testing.T, addr string, port uint16) {
	t.Helper()
	eventually(t, "nothing at "+addr, func() (bool, any) {
		r, err := n.client().Get("http://" + net.JoinHostPort(addr, fmt.Sprint(port)))
		if err == nil {
			r.Body.Close()
			return false, r.Status
		}
		return errors.Is(err, syscall.ECONNREFUSED), err
	})
}

func eventually(t *testing.T, what string, check func() (ok bool, state any)) {
	t.Helper()
	var state any
	for range 2000 {
		var ok bool
		if ok, state = check(); ok {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Fatalf("never: %s; at last %v", what, state)
}

func addrs(list ...string) (out []netip.Addr) {
	for _, s := range list {
		out = append(out, netip.MustParseAddr(s))
	}
	return out
}

func TestAnswer(t *testing.T) {
	n := newNode(t)
	n.SetService(Service{Namespace: "ns", Name: "name", Port: 31000, LocalEndpoints: 1})
	for _, tc := range []struct {
		endpoints int
		healthy   bool
		status    int
	}{
		{1, true, 200},
		{12, true, 200},
		{0, true, 503},
		{2, false, 503},
		{0, false, 503},
		{1, true, 200},
	} {
		n.healthy.Store(tc.healthy)
		n.SetService(Service{Namespace: "ns", Name: "name", Port: 31000, LocalEndpoints: tc.endpoints})
		resp, body := n.get(t, "127.0.0.1", 31000, tc.status)
		want := fmt.Sprintf("{\n\t\"service\": {\n\t\t\"namespace\": \"ns\",\n\t\t\"name\": \"name\"\n\t},\n"+
			"\t\"localEndpoints\": %d,\n\t\"serviceProxyHealthy\": %v\n}", tc.endpoints, tc.healthy)
		if body != want {
			t.Errorf("%+v: body\n%s\nwant\n%s", tc, body, want)
		}
		for header, want := range map[string]string{
			"Content-Type":                     "application/json",
			"X-Content-Type-Options":           "nosniff",
			"X-Load-Balancing-Endpoint-Weight": fmt.Sprint(tc.endpoints),
			"Content-Length":                   fmt.Sprint(len(body)),
		} {
			if got := resp.Header.Values(header); len(got) != 1 || got[0] != want {
				t.Errorf("%+v: header %s: %q, want %q", tc, header, got, want)
			}
		}
		if len(resp.Header) != 5 { // and Date; Connection: close is not among them
			t.Errorf("%+v: headers %v", tc, resp.Header)
		}
	}
}

func TestServicesComeAndGo(t *testing.T) {
	n := newNode(t)
	a := Service{Namespace: "ns", Name: "a", Port: 31001, LocalEndpoints: 1}
	b := Service{Namespace: "ns", Name: "b", Port: 31002, LocalEndpoints: 2}
	sameName := Service{Namespace: "other", Name: "a", Port: 31003, LocalEndpoints: 3}
	n.Set([]Service{a, b, sameName})
	for _, service := range []Service{a, b, sameName} {
		_, body := n.get(t, "127.0.0.1", service.Port, 200)
		for _, part := range []string{service.Namespace, service.Name, fmt.Sprintf(": %d,", service.LocalEndpoints)} {
			if !strings.Contains(body, part) {
				t.Errorf("%+v: %s", service, body)
			}
		}
	}

	n.DeleteService("ns", "a")
	n.DeleteService("ns", "unknown")
	n.refuses(t, "127.0.0.1", 31001)

	b.Port = 31004
	n.SetService(b)
	n.get(t, "127.0.0.1", 31004, 200)
	n.refuses(t, "127.0.0.1", 31002)

	// A port passes from one service to another.
	a.Port = 31004
	n.Set([]Service{a})
	eventually(t, "a has b's port", func() (bool, any) {
		_, body := n.get(t, "127.0.0.1", 31004, 200)
		return strings.Contains(body, `"a"`), body
	})
	n.refuses(t, "127.0.0.1", 31003)

	a.Port = 0
	n.SetService(a)
	n.refuses(t, "127.0.0.1", 31004)
	if events := n.reported(); len(events) != 0 {
		t.Errorf("events %+v", events)
	}
}

func TestAddrsChange(t *testing.T) {
	n := newNode(t)
	for _, addr := range addrs("192.0.2.1", "192.0.2.2", "fd01::1", "fd01::2") {
		n.addAddr(t, addr)
	}
	n.SetService(Service{Namespace: "ns", Name: "a", Port: 31000, LocalEndpoints: 1})
	all := []string{"127.0.0.1", "192.0.2.1", "192.0.2.2", "::1", "fd01::1", "fd01::2"}
	for _, tc := range []struct {
		addrs  []netip.Addr
		served []string
	}{
		{nil, all},
		{addrs("192.0.2.1", "fd01::1"), []string{"192.0.2.1", "fd01::1"}},
		{addrs("192.0.2.1", "192.0.2.2"), []string{"192.0.2.1", "192.0.2.2"}},
		{addrs("0.0.0.0", "192.0.2.1"), all[:3]},
		{addrs("::", "192.0.2.2", "fd01::2"), []string{"192.0.2.2", "::1", "fd01::1", "fd01::2"}},
		{addrs("0.0.0.0", "::"), all},
		{addrs("::ffff:192.0.2.1"), []string{"192.0.2.1"}},
		{[]netip.Addr{{}}, nil},
		{nil, all},
		{[]netip.Addr{}, nil},
	} {
		n.SetAddrs(tc.addrs)
		served := make(map[string]bool)
		for _, addr := range tc.served {
			served[addr] = true
		}
		for _, addr := range all {
			if served[addr] {
				n.get(t, addr, 31000, 200)
			} else {
				n.refuses(t, addr, 31000)
			}
		}
	}
	if events := n.reported(); len(events) != 0 {
		t.Errorf("events %+v", events)
	}
}

// What stays is not opened anew: a client that keeps its connection does not lose it.
func TestListenersThatStay(t *testing.T) {
	n := newNode(t)
	a := Service{Namespace: "ns", Name: "a", Port: 31000, LocalEndpoints: 1}
	n.SetService(a)
	n.SetAddrs(addrs("127.0.0.1"))
	n.get(t, "127.0.0.1", 31000, 200)

	var conn net.Conn
	n.do(func() {
		var err error
		if conn, err = net.Dial("tcp", "127.0.0.1:31000"); err != nil {
			t.Fatal(err)
		}
	})
	defer conn.Close()
	replies := bufio.NewReader(conn)
	ask := func(want int) {
		t.Helper()
		fmt.Fprint(conn, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
		resp, err := http.ReadResponse(replies, nil)
		if err != nil {
			t.Fatal(err)
		}
		io.Copy(io.Discard, resp.Body)
		if resp.StatusCode != want {
			t.Errorf("status %d, want %d", resp.StatusCode, want)
		}
	}
	ask(200)
	n.SetAddrs(addrs("127.0.0.1", "127.0.0.2"))
	n.get(t, "127.0.0.2", 31000, 200)
	a.LocalEndpoints = 0
	n.Set([]Service{a, {Namespace: "ns", Name: "b", Port: 31001, LocalEndpoints: 1}})
	n.get(t, "127.0.0.2", 31001, 200)
	ask(503)
}

// Somebody else has the port, and gives it up later.
func TestPortIsTaken(t *testing.T) {
	n := newNode(t)
	n.SetAddrs(addrs("127.0.0.1", "127.0.0.2"))
	other, err := n.namespace.listen("tcp4", "127.0.0.1:31000")
	if err != nil {
		t.Fatal(err)
	}
	n.SetService(Service{Namespace: "ns", Name: "a", Port: 31000, LocalEndpoints: 1})
	n.get(t, "127.0.0.2", 31000, 200) // the other address works
	eventually(t, "an event", func() (bool, any) { return len(n.reported()) > 0, nil })
	time.Sleep(50 * time.Millisecond) // more attempts, no more events
	want := Event{
		Namespace: "ns", Name: "a", Reason: "FailedToStartServiceHealthcheck", Action: "Listen",
		Message: `node worker failed to start healthcheck "ns/a" on port 31000: ` +
			`listen tcp4 127.0.0.1:31000: bind: address already in use`,
	}
	if events := n.reported(); len(events) != 1 || events[0] != want {
		t.Errorf("events %+v, want %+v", events, want)
	}
	other.Close()
	n.get(t, "127.0.0.1", 31000, 200)
}

// A service whose port is taken goes: the port is left alone from then on.
func TestPortIsNoLongerWanted(t *testing.T) {
	n := newNode(t)
	other, err := n.namespace.listen("tcp", ":31000")
	if err != nil {
		t.Fatal(err)
	}
	n.SetService(Service{Namespace: "ns", Name: "a", Port: 31000, LocalEndpoints: 1})
	eventually(t, "an event", func() (bool, any) { return len(n.reported()) > 0, nil })
	n.DeleteService("ns", "a")
	n.SetService(Service{Namespace: "ns", Name: "b", Port: 31001, LocalEndpoints: 1})
	n.get(t, "127.0.0.1", 31001, 200) // Run has seen both
	n.SetService(Service{Namespace: "ns", Name: "a", Port: 31000, LocalEndpoints: 1})
	eventually(t, "an event for the service that came again", func() (bool, any) {
		return len(n.reported()) == 2, n.reported()
	})
	n.Set(nil)
	n.refuses(t, "127.0.0.1", 31001)
	other.Close()
	time.Sleep(50 * time.Millisecond)
	n.refuses(t, "127.0.0.1", 31000)
}

// An address that the node gets later.
func TestAddressComesLater(t *testing.T) {
	n := newNode(t)
	n.SetAddrs(addrs("192.0.2.1", "fd01::1"))
	n.SetService(Service{Namespace: "ns", Name: "a", Port: 31000, LocalEndpoints: 1})
	eventually(t, "two events", func() (bool, any) { return len(n.reported()) == 2, n.reported() })
	n.addAddr(t, netip.MustParseAddr("192.0.2.1"))
	n.addAddr(t, netip.MustParseAddr("fd01::1"))
	n.get(t, "192.0.2.1", 31000, 200)
	n.get(t, "fd01::1", 31000, 200)
}

// Two services ask for one port; the second gets it as soon as the first goes.
func TestTwoServicesOfOnePort(t *testing.T) {
	n := newNodeWithDelays(t, time.Hour, time.Hour)
	n.Set([]Service{
		{Namespace: "ns", Name: "a", Port: 31000, LocalEndpoints: 1},
		{Namespace: "ns", Name: "b", Port: 31000, LocalEndpoints: 1},
	})
	if _, body := n.get(t, "127.0.0.1", 31000, 200); !strings.Contains(body, `"a"`) {
		t.Error(body)
	}
	eventually(t, "an event", func() (bool, any) { return len(n.reported()) == 1, n.reported() })
	n.DeleteService("ns", "a")
	eventually(t, "b has the port", func() (bool, any) {
		_, body := n.get(t, "127.0.0.1", 31000, 200)
		return strings.Contains(body, `"b"`), body
	})
}

// A listener that dies by itself is opened again.
func TestListenerDies(t *testing.T) {
	n := newNode(t)
	opened := make(chan net.Listener, 10)
	n.ServiceServer.listen = func(network, address string) (net.Listener, error) {
		l, err := n.namespace.listen(network, address)
		if err == nil {
			opened <- l
		}
		return l, err
	}
	n.SetService(Service{Namespace: "ns", Name: "a", Port: 31000, LocalEndpoints: 1})
	(<-opened).Close()
	<-opened
	n.get(t, "127.0.0.1", 31000, 200)
	if events := n.reported(); len(events) != 1 {
		t.Errorf("events %+v", events)
	}
}

func TestNewServiceServerNeedsHealthy(t *testing.T) {
	if _, err := NewServiceServer(Config{}); err == nil {
		t.Error("no error")
	}
}

// Without a seam: the namespace of the process, a port that the kernel chose.
func TestListensInTheProcessesNamespace(t *testing.T) {
	free, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := netip.MustParseAddrPort(free.Addr().String()).Port()
	free.Close()
	s, err := NewServiceServer(Config{Healthy: func() bool { return true }})
	if err != nil {
		t.Fatal(err)
	}
	s.SetAddrs(addrs("127.0.0.1"))
	s.SetService(Service{Namespace: "ns", Name: "a", Port: port, LocalEndpoints: 1})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- s.Run(ctx) }()
	eventually(t, "an answer", func() (bool, any) {
		resp, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d/", port))
		if err != nil {
			return false, err
		}
		resp.Body.Close()
		return resp.StatusCode == 200, resp.Status
	})
	cancel()
	<-done
}
