package healthcheck

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"testing"
	"time"
)

// runOnce runs a server in a namespace with one service. When the test has
// called cancel, Run sends its error.
func runOnce(t *testing.T, ns namespace, drainTimeout time.Duration, healthy func() bool) (
	s *ServiceServer, cancel func(), done <-chan error) {
	t.Helper()
	s, err := NewServiceServer(ServiceConfig{Healthy: healthy})
	if err != nil {
		t.Fatal(err)
	}
	s.listen = ns.listen
	s.drainTimeout = drainTimeout
	s.SetService(Service{Namespace: "ns", Name: "a", Port: 31000, LocalEndpoints: 1})
	ctx, cancel := context.WithCancel(context.Background())
	result := make(chan error, 1)
	go func() { result <- s.Run(ctx) }()
	return s, cancel, result
}

// awaitConn waits until a port accepts a connection, and returns it.
func (ns namespace) awaitConn(t *testing.T, port uint16) (conn net.Conn) {
	t.Helper()
	eventually(t, fmt.Sprintf("a connection to port %d", port), func() (bool, any) {
		var err error
		ns.Do(func() { conn, err = net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port)) })
		return err == nil, err
	})
	t.Cleanup(func() { conn.Close() })
	return conn
}

// awaitFree waits until a program can listen on a port.
func (ns namespace) awaitFree(t *testing.T, port uint16) {
	t.Helper()
	eventually(t, fmt.Sprintf("a free port %d", port), func() (bool, any) {
		l, err := ns.listen("tcp", fmt.Sprintf(":%d", port))
		if err != nil {
			return false, err
		}
		l.Close()
		return true, nil
	})
}

// When its context ends, Run closes all ports and waits for current requests.
func TestRunWaitsForRequests(t *testing.T) {
	for name, before := range map[string]func(t *testing.T, ns namespace, s *ServiceServer){
		"service exists": func(*testing.T, namespace, *ServiceServer) {},
		"service deleted": func(t *testing.T, ns namespace, s *ServiceServer) {
			s.DeleteService("ns", "a")
			ns.awaitFree(t, 31000)
			s.SetService(Service{Namespace: "ns", Name: "b", Port: 31001})
			ns.awaitConn(t, 31001).Close()
		},
	} {
		t.Run(name, func(t *testing.T) { testRunWaitsForRequests(t, before) })
	}
}

func testRunWaitsForRequests(t *testing.T, before func(*testing.T, namespace, *ServiceServer)) {
	ns := newNamespace(t)
	received, release := make(chan struct{}), make(chan struct{})
	s, cancel, done := runOnce(t, ns, time.Minute, func() bool {
		close(received)
		<-release
		return true
	})
	ns.awaitConn(t, 31000).Close()
	status := make(chan int, 1)
	go func() {
		resp, err := ns.client().Get("http://127.0.0.1:31000/")
		if err != nil {
			status <- 0
			return
		}
		resp.Body.Close()
		status <- resp.StatusCode
	}()
	<-received
	before(t, ns, s)
	cancel()
	ns.awaitFree(t, 31000)
	ns.awaitFree(t, 31001)
	time.Sleep(50 * time.Millisecond)
	select {
	case err := <-done:
		t.Fatalf("got Run error %v, want Run to wait for the request", err)
	default:
	}
	close(release)
	if got := <-status; got != 200 {
		t.Errorf("got status %d, want 200", got)
	}
	if err := <-done; err != nil {
		t.Errorf("got Run error %v, want none", err)
	}
}

// Run does not wait longer than drainTimeout for a slow client.
func TestRunClosesSlowRequests(t *testing.T) {
	ns := newNamespace(t)
	_, cancel, done := runOnce(t, ns, time.Millisecond, func() bool { return true })
	conn := ns.awaitConn(t, 31000)
	fmt.Fprint(conn, "GET / HTTP/1.1\r\n")
	cancel()
	if err := <-done; err != nil {
		t.Errorf("got Run error %v, want none", err)
	}
	conn.SetReadDeadline(time.Now().Add(readTimeout / 2)) // before the server's readTimeout
	if n, err := conn.Read(make([]byte, 1)); n != 0 || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("got %d bytes, %v, want a closed connection", n, err)
	}
}
