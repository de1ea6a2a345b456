package healthcheck

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/klog/v2"
)

func TestServiceResponse(t *testing.T) {
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
		resp, body := n.awaitStatus(t, "127.0.0.1", 31000, tc.status)
		want := fmt.Sprintf("{\n\t\"service\": {\n\t\t\"namespace\": \"ns\",\n\t\t\"name\": \"name\"\n\t},\n"+
			"\t\"localEndpoints\": %d,\n\t\"serviceProxyHealthy\": %v\n}", tc.endpoints, tc.healthy)
		if body != want {
			t.Errorf("%+v: got body\n%s\nwant\n%s", tc, body, want)
		}
		wantHeaders(t, resp.Header, map[string]string{
			"Content-Type":                     "application/json",
			"X-Content-Type-Options":           "nosniff",
			"X-Load-Balancing-Endpoint-Weight": fmt.Sprint(tc.endpoints),
			"Content-Length":                   fmt.Sprint(len(body)),
		})
		if len(resp.Header) != 5 { // the fifth is Date
			t.Errorf("%+v: got headers %v, want 5", tc, resp.Header)
		}
	}
}

func TestServicesChange(t *testing.T) {
	n := newNode(t)
	a := Service{Namespace: "ns", Name: "a", Port: 31001, LocalEndpoints: 1}
	b := Service{Namespace: "ns", Name: "b", Port: 31002, LocalEndpoints: 2}
	sameName := Service{Namespace: "other", Name: "a", Port: 31003, LocalEndpoints: 3}
	for _, service := range []Service{a, b, sameName} {
		n.SetService(service)
		_, body := n.awaitStatus(t, "127.0.0.1", service.Port, 200)
		for _, part := range []string{service.Namespace, service.Name, fmt.Sprintf(": %d,", service.LocalEndpoints)} {
			if !strings.Contains(body, part) {
				t.Errorf("%+v: got body %s, want %q in it", service, body, part)
			}
		}
	}

	n.DeleteService("ns", "a")
	n.DeleteService("ns", "unknown")
	n.awaitRefused(t, "127.0.0.1", 31001)

	b.Port = 31004
	n.SetService(b)
	n.awaitStatus(t, "127.0.0.1", 31004, 200)
	n.awaitRefused(t, "127.0.0.1", 31002)

	// A port moves from one service to another.
	a.Port = 31004
	n.DeleteService("ns", "b")
	n.SetService(a)
	n.DeleteService("other", "a")
	eventually(t, "a response for service a", func() (bool, any) {
		_, body := n.awaitStatus(t, "127.0.0.1", 31004, 200)
		return strings.Contains(body, `"a"`), body
	})
	n.awaitRefused(t, "127.0.0.1", 31003)

	a.Port = 0
	n.SetService(a)
	n.awaitRefused(t, "127.0.0.1", 31004)
	if events := n.reported(); len(events) != 0 {
		t.Errorf("got events %+v, want none", events)
	}
}

func TestAddrsChange(t *testing.T) {
	n := newNode(t)
	for _, addr := range []string{"192.0.2.1", "192.0.2.2", "fd01::1", "fd01::2"} {
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
		for _, addr := range all {
			if slices.Contains(tc.served, addr) {
				n.awaitStatus(t, addr, 31000, 200)
			} else {
				n.awaitRefused(t, addr, 31000)
			}
		}
	}
	if events := n.reported(); len(events) != 0 {
		t.Errorf("got events %+v, want none", events)
	}
}

// Changes of other addresses and services do not close the connections of a
// listener.
func TestListenersAreKept(t *testing.T) {
	n := newNode(t)
	a := Service{Namespace: "ns", Name: "a", Port: 31000, LocalEndpoints: 1}
	n.SetService(a)
	n.SetAddrs(addrs("127.0.0.1"))
	n.awaitStatus(t, "127.0.0.1", 31000, 200)

	conn := n.awaitConn(t, 31000)
	responses := bufio.NewReader(conn)
	wantStatus := func(want int) {
		t.Helper()
		fmt.Fprint(conn, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
		resp, err := http.ReadResponse(responses, nil)
		if err != nil {
			t.Fatal(err)
		}
		io.Copy(io.Discard, resp.Body)
		if resp.StatusCode != want {
			t.Errorf("got status %d, want %d", resp.StatusCode, want)
		}
	}
	wantStatus(200)
	n.SetAddrs(addrs("127.0.0.1", "127.0.0.2"))
	n.awaitStatus(t, "127.0.0.2", 31000, 200)
	a.LocalEndpoints = 0
	n.SetService(a)
	n.SetService(Service{Namespace: "ns", Name: "b", Port: 31001, LocalEndpoints: 1})
	n.awaitStatus(t, "127.0.0.2", 31001, 200)
	wantStatus(503)
}

// Another program uses the port, and closes it later.
func TestPortInUse(t *testing.T) {
	n := newNode(t)
	n.SetAddrs(addrs("127.0.0.1", "127.0.0.2"))
	other, err := n.namespace.listen("tcp4", "127.0.0.1:31000")
	if err != nil {
		t.Fatal(err)
	}
	n.SetService(Service{Namespace: "ns", Name: "a", Port: 31000, LocalEndpoints: 1})
	n.awaitStatus(t, "127.0.0.2", 31000, 200) // the other address is served
	n.awaitEvents(t, 1)
	time.Sleep(50 * time.Millisecond) // more attempts, no more events
	want := Event{
		Namespace: "ns", Name: "a", Reason: "FailedToStartServiceHealthcheck",
		Message: `node worker failed to start healthcheck "ns/a" on port 31000: ` +
			`listen tcp4 127.0.0.1:31000: bind: address already in use`,
	}
	if events := n.reported(); len(events) != 1 || events[0] != want {
		t.Errorf("got events %+v, want %+v", events, want)
	}
	other.Close()
	n.awaitStatus(t, "127.0.0.1", 31000, 200)
}

// If a service whose port is in use is deleted, Run no longer tries to open
// the port.
func TestPortNoLongerNeeded(t *testing.T) {
	n := newNode(t)
	other, err := n.namespace.listen("tcp", ":31000")
	if err != nil {
		t.Fatal(err)
	}
	n.SetService(Service{Namespace: "ns", Name: "a", Port: 31000, LocalEndpoints: 1})
	n.awaitEvents(t, 1)
	n.DeleteService("ns", "a")
	n.SetService(Service{Namespace: "ns", Name: "b", Port: 31001, LocalEndpoints: 1})
	n.awaitStatus(t, "127.0.0.1", 31001, 200) // Run has processed both calls
	n.SetService(Service{Namespace: "ns", Name: "a", Port: 31000, LocalEndpoints: 1})
	n.awaitEvents(t, 2) // one for the service that was added again
	n.DeleteService("ns", "a")
	n.DeleteService("ns", "b")
	n.awaitRefused(t, "127.0.0.1", 31001)
	other.Close()
	time.Sleep(50 * time.Millisecond)
	n.awaitRefused(t, "127.0.0.1", 31000)
}

// The node gets an address later.
func TestAddrAddedLater(t *testing.T) {
	n := newNode(t)
	n.SetAddrs(addrs("192.0.2.1", "fd01::1"))
	n.SetService(Service{Namespace: "ns", Name: "a", Port: 31000, LocalEndpoints: 1})
	n.awaitEvents(t, 2)
	n.addAddr(t, "192.0.2.1")
	n.addAddr(t, "fd01::1")
	n.awaitStatus(t, "192.0.2.1", 31000, 200)
	n.awaitStatus(t, "fd01::1", 31000, 200)
}

// Two services have the same port. The second gets it when the first is
// deleted.
func TestTwoServicesWithOnePort(t *testing.T) {
	n := newNodeWithDelays(t, time.Hour, time.Hour)
	n.SetService(Service{Namespace: "ns", Name: "a", Port: 31000, LocalEndpoints: 1})
	n.SetService(Service{Namespace: "ns", Name: "b", Port: 31000, LocalEndpoints: 1})
	if _, body := n.awaitStatus(t, "127.0.0.1", 31000, 200); !strings.Contains(body, `"a"`) {
		t.Errorf("got body %s, want service a", body)
	}
	n.awaitEvents(t, 1)
	n.DeleteService("ns", "a")
	eventually(t, "a response for service b", func() (bool, any) {
		_, body := n.awaitStatus(t, "127.0.0.1", 31000, 200)
		return strings.Contains(body, `"b"`), body
	})
}

// A listener that fails is opened again.
func TestListenerFails(t *testing.T) {
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
	n.awaitStatus(t, "127.0.0.1", 31000, 200)
	if events := n.reported(); len(events) != 1 {
		t.Errorf("got events %+v, want one", events)
	}
}

func TestNewServiceServerWithoutHealthy(t *testing.T) {
	if _, err := NewServiceServer(ServiceConfig{}); err == nil {
		t.Error("got no error without Healthy")
	}
}

func TestDesired(t *testing.T) {
	s, err := NewServiceServer(ServiceConfig{Healthy: func() bool { return true }})
	if err != nil {
		t.Fatal(err)
	}
	for _, service := range []Service{
		{Namespace: "b", Name: "a", Port: 31001},
		{Namespace: "a", Name: "b", Port: 31000},
		{Namespace: "a", Name: "a"},
	} {
		s.SetService(service)
	}
	all := func(port uint16) netip.AddrPort { return netip.AddrPortFrom(netip.Addr{}, port) }
	want := []binding{{klog.KRef("a", "b"), all(31000)}, {klog.KRef("b", "a"), all(31001)}}
	if got := s.desired(); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	s.SetAddrs(addrs("fd01::1", "192.0.2.1"))
	want = []binding{
		{klog.KRef("a", "b"), netip.MustParseAddrPort("192.0.2.1:31000")},
		{klog.KRef("a", "b"), netip.MustParseAddrPort("[fd01::1]:31000")},
		{klog.KRef("b", "a"), netip.MustParseAddrPort("192.0.2.1:31001")},
		{klog.KRef("b", "a"), netip.MustParseAddrPort("[fd01::1]:31001")},
	}
	if got := s.desired(); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
