package manifest

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// recorder is a Handler that records its calls. It checks that the old object
// of an update is the pointer that was delivered before.
type recorder struct {
	lines
	t         testing.TB
	delivered map[objectKey]runtime.Object
	synced    chan struct{} // closed by the first Sync
}

func newRecorder(t testing.TB) *recorder {
	return &recorder{
		lines:     lines{written: make(chan struct{}, 1)},
		t:         t,
		delivered: make(map[objectKey]runtime.Object),
		synced:    make(chan struct{}),
	}
}

func (r *recorder) call(format string, args ...any) { fmt.Fprintf(r, format+"\n", args...) }

// update records an update. old is nil if the object is new.
func update[T interface {
	runtime.Object
	comparable
}](r *recorder, old, new T) {
	var none T
	key := keyOf(new)
	if before := r.delivered[key]; old == none && before != nil || old != none && before != runtime.Object(old) {
		r.t.Errorf("%s: the old object is not the one that was delivered before", key)
	}
	r.delivered[key] = new
	if old == none {
		r.call("+ %s%s", describe(new), address(new))
	} else {
		r.call("= %s%s%s", describe(new), address(old), address(new))
	}
}

func (r *recorder) remove(object runtime.Object) {
	if key := keyOf(object); r.delivered[key] != object {
		r.t.Errorf("%s: the deleted object is not the one that was delivered before", key)
	}
	delete(r.delivered, keyOf(object))
	r.call("- %s%s", describe(object), address(object))
}

func describe(object runtime.Object) string {
	key := keyOf(object)
	return string(key.Kind) + " " + key.Name
}

func address(object runtime.Object) string {
	if service, ok := object.(*corev1.Service); ok {
		return " " + service.Spec.ClusterIP
	}
	return ""
}

func (r *recorder) OnServiceUpdate(old, new *corev1.Service) { update(r, old, new) }
func (r *recorder) OnServiceDelete(service *corev1.Service)  { r.remove(service) }
func (r *recorder) OnNodeUpdate(old, new *corev1.Node)       { update(r, old, new) }
func (r *recorder) OnNodeDelete(node *corev1.Node)           { r.remove(node) }

func (r *recorder) OnEndpointSliceUpdate(old, new *discoveryv1.EndpointSlice) { update(r, old, new) }
func (r *recorder) OnEndpointSliceDelete(slice *discoveryv1.EndpointSlice)    { r.remove(slice) }

func (r *recorder) OnServiceSynced()                     { r.call("Services synced") }
func (r *recorder) OnEndpointSlicesSynced()              { r.call("EndpointSlices synced") }
func (r *recorder) OnNodeSynced()                        { r.call("Node synced") }
func (r *recorder) OnServiceCIDRsChanged(cidrs []string) { r.call("ServiceCIDRs %v", cidrs) }

func (r *recorder) Sync() {
	r.call("Sync")
	select {
	case <-r.synced:
	default:
		close(r.synced)
	}
}
