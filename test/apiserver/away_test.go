package apiserver

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"

	"github.com/nftproxy/nftproxy/test/apiserver/cluster"
)

// changes are some Services that change while the subject does not see it.
type changes struct {
	w                              *world
	steady, changing, gone, coming *service
}

func newChanges(w *world) *changes {
	return &changes{
		w:        w,
		steady:   w.createService("steady", "a1 a2 b1"),
		changing: w.createService("changing", "a1"),
		gone:     w.createService("gone", "a1 b1"),
	}
}

// make makes them through an API server.
func (c *changes) make(server kubernetes.Interface) {
	c.w.t.Helper()
	c.changing.setEndpointsBy(server, "b1 b2")
	c.gone.deleteBy(server)
	c.coming = c.w.createServiceBy(server, "coming", "a2")
}

// unmade wants the state from before the changes.
func (c *changes) unmade() {
	c.w.t.Helper()
	c.changing.servedBy("a1")
	c.gone.servedBy("a1 b1")
}

// made wants the state with the changes.
func (c *changes) made() {
	c.w.t.Helper()
	c.changing.servedBy("b1 b2")
	c.coming.servedBy("a2")
	c.gone.unserved()
	c.steady.servedBy("a1 a2 b1")
}

// TestAPIServerAway stops the API server for longer than a proxy's sync period. Objects change meanwhile through another one, and etcd
// forgets how: watches cannot go on from where they were.
func TestAPIServerAway(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := newChanges(w)
	p := w.subject()
	p.startSynced()
	c.steady.servedBy("a1 a2 b1")
	c.unmade()
	before := w.tables(w.Node1)
	stream := c.steady.startStream(t)

	w.must(w.APIServer.Kill())
	const away = 35 * time.Second // the sync period is 30 s
	time.Sleep(away)
	if now := w.tables(w.Node1); now != before {
		t.Errorf("tables while the API server is away:\n%s\nbefore:\n%s", now, before)
	}
	c.unmade()
	p.awaitHealth()

	other, err := w.StartAPIServer(w.ctx(), 6444)
	w.must(err)
	c.make(other.Client)
	w.must(other.Stop())
	w.must(w.Compact(w.ctx()))
	c.unmade()

	restart := time.Now()
	monitor := w.monitor(w.Node1)
	w.must(w.APIServer.Start(w.ctx()))
	c.made()
	monitor.leftAlone(c.steady)
	w.relisted(restart, "services", "endpointslices")
	stream.mustNotFail()
	p.awaitHealth()

	// Watching goes on.
	c.changing.setEndpoints("a2")
	c.changing.servedBy("a2")
}

// relisted wants a full list of the resources to have been asked for since then.
func (w *world) relisted(since time.Time, resources ...string) {
	w.t.Helper()
	if err := w.listed(since, resources...); err != nil {
		w.t.Error(err)
	}
}

// listed tells which of the resources no full list has been asked for since then.
func (w *world) listed(since time.Time, resources ...string) error {
	requests, err := w.APIServer.Requests()
	if err != nil {
		return err
	}
	for _, resource := range resources {
		found := func(r cluster.Request) bool {
			return r.Object.Resource == resource && r.Received.After(since) && isList(r)
		}
		if !slices.ContainsFunc(requests, found) {
			return fmt.Errorf("no list of %s since %v, in %v", resource, since, requests)
		}
	}
	return nil
}

// isList tells whether a request is for a full list, be it as the beginning of a watch.
func isList(r cluster.Request) bool {
	return r.Verb == "list" || strings.Contains(r.URI, "sendInitialEvents=true")
}

// TestNetworkAway breaks the network between the node and the API server: so shortly that connections survive, and for longer.
func TestNetworkAway(t *testing.T) {
	t.Parallel()
	for _, outage := range []struct {
		name string
		time time.Duration
	}{
		{"short", time.Second},
		{"long", 8 * time.Second}, // a client that asks every 2 s and waits for 2 s notices
	} {
		t.Run(outage.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			c := newChanges(w)
			p := w.subject()
			p.startSynced()
			c.unmade()
			before := w.tables(w.Node1)
			stream := c.steady.startStream(t)

			w.must(w.Isolate(w.Node1.Namespace))
			c.make(w.Admin())
			time.Sleep(outage.time)
			if now := w.tables(w.Node1); now != before {
				t.Errorf("tables without a network:\n%s\nbefore:\n%s", now, before)
			}
			monitor := w.monitor(w.Node1)
			w.must(w.Rejoin(w.Node1.Namespace))
			c.made()
			monitor.leftAlone(c.steady)
			stream.mustNotFail()
		})
	}
}

// TestStartWithoutAPIServer starts the subject on a node with rules when no API server can be reached.
func TestStartWithoutAPIServer(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := newChanges(w)
	p := w.subject()
	p.startSynced()
	c.unmade()
	p.kill()
	before := w.tables(w.Node1)
	w.must(w.APIServer.Kill())

	p.start()
	stream := c.steady.startStream(t)
	time.Sleep(5 * time.Second)
	p.notHealthy()
	if now := w.tables(w.Node1); now != before {
		t.Errorf("tables without an API server:\n%s\nbefore:\n%s", now, before)
	}
	w.must(w.APIServer.Start(w.ctx()))
	c.make(w.Admin())
	c.made()
	p.awaitHealth()
	stream.mustNotFail()
}
