package app

import (
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/nftproxy/nftproxy/proxier/cluster"
)

// The limits of eventLimits are token buckets: a burst, then a rate per
// second.
const (
	reasonBurst    = 50
	reasonQPS      = 1.0 / 10 // one in 10 seconds
	namespaceBurst = 25
	namespaceQPS   = 1.0 / 20
	objectBurst    = 10
	objectQPS      = 1.0 / 300 // one in 5 minutes, as in client-go's record.EventCorrelator
	limitCache     = 4096      // objects, and namespaces, whose events are counted
)

// eventLimits decides which warnings become events in the API. An error in
// one object can cause a warning on every node, and hundreds of objects can
// be invalid at once, so the number of events is limited:
//
//   - for each reason, such as AddressConflict: 50 events at once, then one
//     every 10 seconds;
//   - for each namespace and reason: half of it, so that the objects of one
//     namespace leave events to others;
//   - for each object: 10 events at once, then one every 5 minutes.
//
// A warning above a limit is logged and never becomes an event.
type eventLimits struct {
	mu                           sync.Mutex
	reasons, namespaces, objects *record.EventSourceObjectSpamFilter
	exceeded                     map[string]bool // reports whether the last warning of a reason was above the limit
}

func newEventLimits() *eventLimits {
	limit := func(burst int, qps float32, key func(*corev1.Event) string) *record.EventSourceObjectSpamFilter {
		return record.NewEventSourceObjectSpamFilter(limitCache, burst, qps, clock.RealClock{}, key)
	}
	return &eventLimits{
		exceeded: make(map[string]bool),
		reasons:  limit(reasonBurst, reasonQPS, func(e *corev1.Event) string { return e.Reason }),
		namespaces: limit(namespaceBurst, namespaceQPS, func(e *corev1.Event) string {
			return e.Reason + "/" + e.InvolvedObject.Namespace
		}),
		objects: limit(objectBurst, objectQPS, func(e *corev1.Event) string {
			return e.InvolvedObject.Kind + "/" + e.InvolvedObject.Namespace + "/" + e.InvolvedObject.Name
		}),
	}
}

// allow reports whether a warning is within the limits, and counts it if it
// is.
func (l *eventLimits) allow(e cluster.Event) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	event := &corev1.Event{InvolvedObject: *referenceOf(e), Reason: e.Reason}
	if l.objects.Filter(event) || l.namespaces.Filter(event) {
		return false
	}
	exceeded := l.reasons.Filter(event)
	if exceeded && !l.exceeded[e.Reason] {
		klog.InfoS("Reached the limit of events, logging some warnings without an event", "reason", e.Reason)
	}
	l.exceeded[e.Reason] = exceeded
	return !exceeded
}
