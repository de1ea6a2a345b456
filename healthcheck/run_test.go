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

// When Run ends, requests under way are answered and nothing listens any more.
func TestRunEnds(t *testing.T) {
	for name, before := range map[string]func(t *testing.T, ns namespace, s *ServiceServer){
		"while the service is there": func(*testing.T, namespace, *ServiceServer) {},
		"after the service has gone": func(t *testing.T, ns namespace, s *ServiceServer) {
			s.DeleteService("ns", "a")
			ns.awaitFree(t, 31000)
			s.SetService(Service{Namespace: "ns", Name: "b", Port: 31001})
			eventually(t, "the other service", func() (bool, any) {
				var err error
				ns.do(func() {
					var conn net.Conn
					if conn, err = net.Dial("tcp", "127.0.0.1:31001"); err == nil {
						conn.Close()
					}
				})
				return err == nil, err
			})
		},
	} {
		t.Run(name, func(t *testing.T) { testRunEnds(t, before) })
	}
}

func testRunEnds(t *testing.T, before func(*testing.T, namespace, *ServiceServer)) {
	ns := newNamespace(t)
	asked, release := make(chan struct{}), make(chan struct{})
	s, err := NewServiceServer(Config{Healthy: func() bool {
		close(asked)
		<-release
		return true
	}})
	if err != nil {
		t.Fatal(err)
	}
	s.listen = ns.listen
	s.drainTimeout = time.Minute
	s.Set([]Service{{Namespace: "ns", Name: "a", Port: 31000, LocalEndpoints: 1}})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- s.Run(ctx) }()

	status := make(chan int)
	go func() {
		for {
			resp, err := ns.client().Get("http://127.0.0.1:31000/")
			if err == nil {
				resp.Body.Close()
				status <- resp.StatusCode
				return
			}
			time.Sleep(time.Millisecond)
		}
	}()
	<-asked
	before(t, ns, s)
	cancel()
	ns.awaitFree(t, 31000)
	ns.awaitFree(t, 31001)
	time.Sleep(50 * time.Millisecond)
	select {
	case err := <-done:
		t.Fatalf("Run did not wait for the request: %v", err)
	default:
	}
	close(release)
	if got := <-status; got != 200 {
		t.Errorf("status %d", got)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// awaitFree waits until a port can be listened on.
func (ns namespace) awaitFree(t *testing.T, port uint16) {
	t.Helper()
	eventually(t, fmt.Sprintf("port %d is free", port), func() (bool, any) {
		l, err := ns.listen("tcp", fmt.Sprintf(":%d", port))
		if err != nil {
			return false, err
		}
		l.Close()
		return true, nil
	})
}

// A client that never ends its request does not keep Run.
func TestRunEndsWithoutSlowClients(t *testing.T) {
	ns := newNamespace(t)
	s, err := NewServiceServer(Config{Healthy: func() bool { return true }})
	if err != nil {
		t.Fatal(err)
	}
	s.listen = ns.listen
	s.drainTimeout = time.Millisecond
	s.Set([]Service{{Namespace: "ns", Name: "a", Port: 31000, LocalEndpoints: 1}})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- s.Run(ctx) }()
	var conn net.Conn
	eventually(t, "a connection", func() (bool, any) {
		ns.do(func() { conn, err = net.Dial("tcp", "127.0.0.1:31000") })
		return err == nil, err
	})
	defer conn.Close()
	fmt.Fprint(conn, "GET / HTTP/1.1\r\n")
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	conn.SetReadDeadline(time.Now().Add(readTimeout / 2)) // the server would close it at readTimeout anyway
	if n, err := conn.Read(make([]byte, 1)); n != 0 || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the connection is still open: %d, %v", n, err)
	}
}
