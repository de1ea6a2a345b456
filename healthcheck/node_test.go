package healthcheck

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// node is a ServiceServer that runs in its own network namespace.
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
	s, err := NewServiceServer(ServiceConfig{
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
			t.Errorf("got Run error %v, want none", err)
		}
	})
	return n
}

// awaitEvents waits until a number of events were reported.
func (n *node) awaitEvents(t *testing.T, want int) {
	t.Helper()
	eventually(t, fmt.Sprintf("%d events", want), func() (bool, any) {
		events := n.reported()
		return len(events) == want, events
	})
}

func (n *node) reported() []Event {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.events)
}

// awaitStatus sends requests until the response has a status, and returns it.
func (n *node) awaitStatus(t *testing.T, addr string, port uint16, want int) (*http.Response, string) {
	t.Helper()
	var resp *http.Response
	var body string
	eventually(t, fmt.Sprintf("status %d from %s", want, addr), func() (ok bool, state any) {
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

// awaitRefused waits until connections to an address are refused.
func (n *node) awaitRefused(t *testing.T, addr string, port uint16) {
	t.Helper()
	eventually(t, "refused connections to "+addr, func() (bool, any) {
		r, err := n.client().Get("http://" + net.JoinHostPort(addr, fmt.Sprint(port)))
		if err == nil {
			r.Body.Close()
			return false, r.Status
		}
		return errors.Is(err, syscall.ECONNREFUSED), err
	})
}

// eventually waits up to 10 s until check succeeds. state is for the failure
// message.
func eventually(t *testing.T, want string, check func() (ok bool, state any)) {
	t.Helper()
	var state any
	for range 2000 {
		var ok bool
		if ok, state = check(); ok {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Fatalf("got %v after 10 s, want %s", state, want)
}

func addrs(list ...string) (out []netip.Addr) {
	for _, s := range list {
		out = append(out, netip.MustParseAddr(s))
	}
	return out
}
