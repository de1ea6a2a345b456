package app

import (
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/share"
)

// A limit is a token bucket: a burst, then a rate per second.
const (
	reasonBurst    = 50
	reasonQPS      = 1.0 / 10 // one in 10 seconds
	objectBurst    = 10
	objectQPS      = 1.0 / 300 // one in 5 minutes, as in client-go's record.EventCorrelator
	countedObjects = 4096
	linesBurst     = 20
	linesQPS       = 1.0 / 60
)

// eventLimits decides which warnings become events in the API. An error in
// one object can cause a warning on every node, and hundreds of objects can
// be invalid at once, so the number of events is limited:
//
//   - for each reason, such as AddressConflict: 50 events at once, then one
//     every 10 seconds. Each namespace has a share of them;
//   - for each object: 10 events at once, then one every 5 minutes.
//
// A warning above a limit is logged and never becomes an event.
type eventLimits struct {
	mu      sync.Mutex
	reasons map[string]*share.Rate
	objects *record.EventSourceObjectSpamFilter
	lines   *share.Rate // log lines about warnings above the limit of a reason
}

func newEventLimits() *eventLimits {
	return &eventLimits{
		reasons: make(map[string]*share.Rate), lines: share.NewRate(linesBurst, linesQPS),
		objects: record.NewEventSourceObjectSpamFilter(countedObjects, objectBurst, objectQPS, clock.RealClock{},
			func(e *corev1.Event) string {
				return e.InvolvedObject.Kind + "/" + e.InvolvedObject.Namespace + "/" + e.InvolvedObject.Name
			}),
	}
}

// allow reports whether a warning is within the limits, and counts it if it
// is.
func (l *eventLimits) allow(e cluster.Event) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.objects.Filter(&corev1.Event{InvolvedObject: *referenceOf(e)}) {
		return false
	}
	if l.reasons[e.Reason] == nil {
		l.reasons[e.Reason] = share.NewRate(reasonBurst, reasonQPS)
	}
	now := time.Now()
	if l.reasons[e.Reason].Use(e.Namespace, now) {
		return true
	}
	if l.lines.Use(e.Namespace, now) {
		klog.InfoS("Reached the limit of events, logging some warnings without an event",
			"reason", e.Reason, "namespace", e.Namespace)
	}
	return false
}
