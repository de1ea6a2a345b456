package manifest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/klog/v2"
)

// recorder is a Handler that records its calls and a log sink that records
// its lines.
type recorder struct {
	mu      sync.Mutex
	calls   []string
	lines   []string
	objects map[string]string // by name: the ClusterIP of a Service, otherwise ""
	waiting chan struct{}     // closed by the next Sync or line
}

func newRecorder() *recorder {
	return &recorder{objects: make(map[string]string), waiting: make(chan struct{})}
}

func (r *recorder) call(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls = append(r.calls, fmt.Sprintf(format, args...))
}

func (r *recorder) set(name, value string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.objects[name] = value
}

func (r *recorder) remove(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.objects, name)
}

func (r *recorder) wake() {
	r.mu.Lock()
	defer r.mu.Unlock()
	close(r.waiting)
	r.waiting = make(chan struct{})
}

// take returns the calls since the previous take.
func (r *recorder) take() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	calls := r.calls
	r.calls = nil
	return calls
}

// takeLines returns the log lines since the previous takeLines.
func (r *recorder) takeLines() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	lines := r.lines
	r.lines = nil
	return lines
}

func (r *recorder) OnServiceUpdate(old, new *corev1.Service) {
	if old == nil {
		r.call("+ Service %s %s", new.Name, new.Spec.ClusterIP)
	} else {
		r.call("= Service %s %s %s", new.Name, old.Spec.ClusterIP, new.Spec.ClusterIP)
	}
	r.set(new.Name, new.Spec.ClusterIP)
}

func (r *recorder) OnServiceDelete(service *corev1.Service) {
	r.call("- Service %s %s", service.Name, service.Spec.ClusterIP)
	r.remove(service.Name)
}

func (r *recorder) OnEndpointSliceUpdate(old, new *discoveryv1.EndpointSlice) {
	r.update(old == nil, "EndpointSlice", new.Name)
}

func (r *recorder) OnEndpointSliceDelete(slice *discoveryv1.EndpointSlice) {
	r.call("- EndpointSlice %s", slice.Name)
	r.remove(slice.Name)
}

func (r *recorder) OnNodeUpdate(old, new *corev1.Node) { r.update(old == nil, "Node", new.Name) }

// update records an update of an object that is not a Service.
func (r *recorder) update(added bool, kind, name string) {
	sign := "="
	if added {
		sign = "+"
	}
	r.call("%s %s %s", sign, kind, name)
	r.set(name, "")
}

func (r *recorder) OnNodeDelete(node *corev1.Node) {
	r.call("- Node %s", node.Name)
	r.remove(node.Name)
}

func (r *recorder) OnServiceSynced()                     { r.call("Services synced") }
func (r *recorder) OnEndpointSlicesSynced()              { r.call("EndpointSlices synced") }
func (r *recorder) OnNodeSynced()                        { r.call("Node synced") }
func (r *recorder) OnServiceCIDRsChanged(cidrs []string) { r.call("ServiceCIDRs %v", cidrs) }

func (r *recorder) Sync() {
	r.call("Sync")
	r.wake()
}

// The recorder as a klog.LogSink.

func (r *recorder) Init(klog.RuntimeInfo)             {}
func (r *recorder) Enabled(int) bool                  { return true }
func (r *recorder) WithName(string) klog.LogSink      { return r }
func (r *recorder) WithValues(...any) klog.LogSink    { return r }
func (r *recorder) Info(_ int, msg string, kv ...any) { r.line("I "+msg, kv) }
func (r *recorder) Error(err error, msg string, kv ...any) {
	r.line("E "+msg+": "+err.Error(), kv)
}

func (r *recorder) line(text string, keysAndValues []any) {
	for i := 0; i+1 < len(keysAndValues); i += 2 {
		text += fmt.Sprintf(" %v=%v", keysAndValues[i], keysAndValues[i+1])
	}
	r.mu.Lock()
	r.lines = append(r.lines, text)
	r.mu.Unlock()
	r.wake()
}

// timeout limits the time that tests wait for a condition.
const timeout = 20 * time.Second

// await waits until a condition is met.
func (r *recorder) await(t *testing.T, what string, condition func() bool) {
	t.Helper()
	deadline := time.After(timeout)
	for {
		r.mu.Lock()
		waiting, met := r.waiting, condition()
		r.mu.Unlock()
		if met {
			return
		}
		select {
		case <-waiting:
		case <-deadline:
			t.Fatalf("timed out waiting for %s; got calls %q, log %q", what, r.take(), r.takeLines())
		}
	}
}

// awaitService waits until a Service has a ClusterIP and the round is
// complete.
func (r *recorder) awaitService(t *testing.T, name, clusterIP string) {
	t.Helper()
	r.await(t, name+" at "+clusterIP, func() bool {
		return r.objects[name] == clusterIP && len(r.calls) > 0 && r.calls[len(r.calls)-1] == "Sync"
	})
}

// awaitDeletion waits until an object is deleted and the round is complete.
func (r *recorder) awaitDeletion(t *testing.T, name string) {
	t.Helper()
	r.await(t, "deletion of "+name, func() bool {
		_, found := r.objects[name]
		return !found && len(r.calls) > 0 && r.calls[len(r.calls)-1] == "Sync"
	})
}

// awaitLine waits for a log line that contains a text.
func (r *recorder) awaitLine(t *testing.T, text string) {
	t.Helper()
	r.await(t, "log line "+text, func() bool {
		return slices.ContainsFunc(r.lines, func(line string) bool { return strings.Contains(line, text) })
	})
}

// context returns a context whose logger is the recorder.
func (r *recorder) context(t *testing.T) context.Context {
	return klog.NewContext(t.Context(), klog.New(r))
}
