package apiserver

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"

	"github.com/nftproxy/nftproxy/test/cluster"
)

// changes are Services that change while the subject is disconnected.
type changes struct {
	w                                *world
	steady, changing, removed, added *service
}

func newChanges(w *world) *changes {
	return &changes{
		w:        w,
		steady:   w.createService("steady", "a1 a2 b1"),
		changing: w.createService("changing", "a1"),
		removed:  w.createService("removed", "a1 b1"),
	}
}

// make makes the changes with a client.
func (c *changes) make(client kubernetes.Interface) {
	c.w.t.Helper()
	w := c.w.with(client)
	w.service(c.changing).setEndpoints("b1 b2")
	w.service(c.removed).delete()
	c.added = w.createService("added", "a2")
}

// expectBefore checks the state before the changes.
func (c *changes) expectBefore() {
	c.w.t.Helper()
	c.changing.servedBy("a1")
	c.removed.servedBy("a1 b1")
}

// expectAfter checks the state after the changes.
func (c *changes) expectAfter() {
	c.w.t.Helper()
	c.changing.servedBy("b1 b2")
	c.added.servedBy("a2")
	c.removed.unserved()
	c.steady.servedBy("a1 a2 b1")
}

// TestAPIServerAway stops the API server for longer than a proxy's sync
// period. Objects change through another API server, and etcd is compacted,
// so that watches cannot resume.
func TestAPIServerAway(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := newChanges(w)
	p := w.subject()
	p.startSynced()
	c.steady.servedBy("a1 a2 b1")
	c.expectBefore()
	before := w.tables(w.Node1)
	stream := c.steady.startStream(t)

	w.must(w.APIServer.Kill())
	const away = 35 * time.Second // the sync period is 30 s
	time.Sleep(away)
	w.expectTables("without an API server", before)
	c.expectBefore()
	p.awaitHealth()

	other, err := w.StartAPIServer(w.ctx(), 6444)
	w.must(err)
	c.make(other.Client)
	w.must(other.Stop())
	w.must(w.Compact(w.ctx()))
	c.expectBefore()

	restart := time.Now()
	monitor := w.monitor(w.Node1)
	w.must(w.APIServer.Start(w.ctx()))
	c.expectAfter()
	monitor.notWritten(c.steady)
	w.must(w.listed(restart, "services", "endpointslices"))
	stream.mustNotFail()
	p.awaitHealth()

	// The watches work.
	c.changing.setEndpoints("a2")
	c.changing.servedBy("a2")
}

// listed returns an error unless the subject has listed the resources since a
// time.
func (w *world) listed(since time.Time, resources ...string) error {
	for _, resource := range resources {
		n, err := w.requests(resource, since, isList)
		if err == nil && n == 0 {
			err = fmt.Errorf("no list of %s since %v", resource, since)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// isList reports whether a request returns a full list, alone or before a
// watch.
func isList(r cluster.Request) bool {
	return r.Verb == "list" || strings.Contains(r.URI, "sendInitialEvents=true")
}

// requests returns the number of matching requests for a resource since a
// time.
func (w *world) requests(resource string, since time.Time, match func(cluster.Request) bool) (int, error) {
	requests, err := w.APIServer.Requests()
	n := 0
	for _, r := range requests {
		if r.Object.Resource == resource && r.Received.After(since) && match(r) {
			n++
		}
	}
	return n, err
}

// awaitRequests waits for n matching requests for a resource since a time.
func (w *world) awaitRequests(n int, resource string, since time.Time, match func(cluster.Request) bool) {
	w.t.Helper()
	eventually(w.t, "requests for "+resource, func() error {
		got, err := w.requests(resource, since, match)
		if err == nil && got < n {
			err = fmt.Errorf("got %d, want %d", got, n)
		}
		return err
	})
}

// TestNetworkAway interrupts the network between the node and the API server,
// for so short that connections survive, and for longer.
func TestNetworkAway(t *testing.T) {
	t.Parallel()
	for _, outage := range []struct {
		name string
		time time.Duration
	}{
		{"short", time.Second},
		{"long", 8 * time.Second}, // clients detect a dead connection within 4 s
	} {
		t.Run(outage.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			c := newChanges(w)
			p := w.subject()
			p.startSynced()
			c.expectBefore()
			before := w.tables(w.Node1)
			stream := c.steady.startStream(t)

			w.must(w.Isolate(w.Node1.Namespace))
			c.make(w.Admin())
			time.Sleep(outage.time)
			w.expectTables("without a network", before)
			monitor := w.monitor(w.Node1)
			w.must(w.Rejoin(w.Node1.Namespace))
			c.expectAfter()
			monitor.notWritten(c.steady)
			stream.mustNotFail()
		})
	}
}

// TestStartWithoutAPIServer starts the subject on a node with rules while the
// API server is down.
func TestStartWithoutAPIServer(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := newChanges(w)
	p := w.subject()
	p.startSynced()
	c.expectBefore()
	p.kill()
	before := w.tables(w.Node1)
	w.must(w.APIServer.Kill())

	p.start()
	stream := c.steady.startStream(t)
	time.Sleep(5 * time.Second)
	p.notHealthy()
	w.expectTables("without an API server", before)
	w.must(w.APIServer.Start(w.ctx()))
	c.make(w.Admin())
	c.expectAfter()
	p.awaitHealth()
	stream.mustNotFail()
}
