package apiserver

import (
	"fmt"
	"testing"
)

// TestTakeover replaces one proxy by another on the same node, there and back, under a steady stream of new connections.
func TestTakeover(t *testing.T) {
	t.Parallel()
	for _, end := range []struct {
		name string
		end  func(*proxy)
	}{
		{"SIGTERM", (*proxy).terminate},
		{"SIGKILL", (*proxy).kill},
	} {
		t.Run(end.name, func(t *testing.T) {
			t.Parallel()
			testTakeover(t, end.end)
		})
	}
}

func testTakeover(t *testing.T, end func(*proxy)) {
	w := newWorld(t)
	steady := w.createService("steady", "a1 a2 b1")
	changing := w.createService("changing", "a1")
	for i := range 50 { // so that writing takes a moment
		w.createService(fmt.Sprintf("other-%d", i), "a1 a2 b1 b2")
	}
	current := w.proxy(upstream)
	current.startSynced()
	steady.servedBy("a1 a2 b1")
	stream := steady.startStream(t)
	endpoints := []string{"b1", "a2 b2", "a1", "b2"}
	for i, name := range []string{subjectName(), upstream, subjectName(), upstream} {
		stream.pass(100)
		end(current)
		stream.pass(100) // with no proxy
		current = w.proxy(name)
		current.startSynced()
		// It is in charge, of what the one before left too.
		changing.setEndpoints(endpoints[i])
		changing.servedBy(endpoints[i])
	}
	stream.pass(200)
	stream.mustNotFail()
}
