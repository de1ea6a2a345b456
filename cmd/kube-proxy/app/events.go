package app

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record/util"
	"k8s.io/klog/v2"

	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/share"
)

const (
	// component is the name of this program in events.
	component = "kube-proxy"
	// maxNote is the longest note that the API accepts, in bytes.
	maxNote = 1024
	// maxPending is the number of events that are not sent yet. Each namespace
	// has a share of it.
	maxPending = 2000
	// seriesEnd is how long after its last event a series ends.
	seriesEnd = 6 * time.Minute
	// maxTries is the number of requests for an event, as in client-go.
	maxTries = 12
	// The pause after the first failed request for an event doubles with each
	// further one. The API server keeps events for an hour by default, and
	// the last request follows after an hour.
	minPause, maxPause = 10 * time.Second, 10 * time.Minute
	// requestTimeout ends a request that the API server does not answer.
	requestTimeout = 10 * time.Second
)

// eventRecorder sends events to the API server, one at a time. It implements
// cluster.EventRecorder. Equal events become a series, which is one object with
// a counter. An event that cannot be sent is tried again later and does not
// delay others. It is used in place of client-go's broadcaster, which links the
// types of all API groups.
type eventRecorder struct {
	client   rest.Interface
	limits   *eventLimits // of the events of the proxier
	instance string
	mu       sync.Mutex   // guards pending
	pending  *share.Limit // events that wait in the queue or for another try
	queue    chan pendingEvent
	series   map[seriesKey]*eventsv1.Event // the events of the last minutes
	failing  bool                          // reports whether the last request failed
}

// pendingEvent is an event that is not sent yet.
type pendingEvent struct {
	*eventsv1.Event
	tries int // failed requests
}

// seriesKey identifies equal events.
type seriesKey struct {
	regarding                 corev1.ObjectReference
	typ, reason, action, note string
}

// newEventRecorder returns an eventRecorder that sends events with client.
// Other requests must not share the client's rate limiter: events would delay
// them.
func newEventRecorder(client rest.Interface) *eventRecorder {
	hostname, _ := os.Hostname()
	return &eventRecorder{
		client: client, limits: newEventLimits(), instance: component + "-" + hostname,
		pending: share.NewLimit(maxPending), queue: make(chan pendingEvent, maxPending),
		series: make(map[seriesKey]*eventsv1.Event),
	}
}

// Record implements cluster.EventRecorder. It drops events above the limits.
func (r *eventRecorder) Record(e cluster.Event) {
	if r.limits.allow(e) {
		r.add(referenceOf(e), corev1.EventTypeWarning, e.Reason, "ProgramServices", truncate(e.Note, maxNote))
	}
}

// recordStart records that this proxy starts, as an event of its node.
func (r *eventRecorder) recordStart(nodeName string) {
	r.add(nodeReference(nodeName), corev1.EventTypeNormal, "Starting", "StartKubeProxy", "")
}

// recordServerFailure records that an HTTP server failed, as an event of this
// proxy's node.
func (r *eventRecorder) recordServerFailure(nodeName, reason string, err error) {
	r.add(nodeReference(nodeName), corev1.EventTypeWarning, reason, "StartKubeProxy",
		truncate(err.Error(), maxNote))
}

func nodeReference(name string) *corev1.ObjectReference {
	return &corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: name}
}

func referenceOf(e cluster.Event) *corev1.ObjectReference {
	version := corev1.SchemeGroupVersion
	if e.Kind == "EndpointSlice" {
		version = discoveryv1.SchemeGroupVersion
	}
	r := &corev1.ObjectReference{Kind: e.Kind, Namespace: e.Namespace, Name: e.Name}
	r.APIVersion, r.UID = version.String(), types.UID(e.UID)
	return r
}

// truncate returns at most n bytes of s and does not split a character.
func truncate(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n], "")
}

// add queues an event. It drops the event if too many of its namespace are
// pending.
func (r *eventRecorder) add(regarding *corev1.ObjectReference, typ, reason, action, note string) {
	now := time.Now()
	event := &eventsv1.Event{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: cmp.Or(regarding.Namespace, metav1.NamespaceDefault),
			Name:      util.GenerateEventName(regarding.Name, now.UnixNano()),
		},
		EventTime:           metav1.NewMicroTime(now),
		ReportingController: component,
		ReportingInstance:   r.instance,
		Action:              action,
		Reason:              reason,
		Regarding:           *regarding,
		Note:                note,
		Type:                typ,
	}
	r.mu.Lock()
	waits := r.pending.Take(event.Namespace, 1)
	r.mu.Unlock()
	if !waits {
		klog.V(2).InfoS("Dropped an event, too many events of its namespace wait for the API server",
			"reason", reason, "namespace", event.Namespace)
		return
	}
	r.queue <- pendingEvent{Event: event} // does not block: it has a place for each pending event
}

// run sends events until ctx ends.
func (r *eventRecorder) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case event := <-r.queue:
			r.send(ctx, event)
		}
	}
}

// send sends an event. If the API server is unreachable or fails, the event
// is queued again after a pause. It drops an event that the API server rejects,
// or that failed too often.
func (r *eventRecorder) send(ctx context.Context, e pendingEvent) {
	r.endSeries(e.EventTime.Time)
	err := r.trySend(ctx, e.Event)
	e.tries++
	switch {
	case err == nil || ctx.Err() != nil:
		r.failing = false
	case isRejection(err):
		klog.ErrorS(err, "The API server rejected an event", "reason", e.Reason)
	case e.tries >= maxTries:
		klog.ErrorS(err, "Failed to send an event, dropped it", "reason", e.Reason, "requests", e.tries)
	default:
		if e.tries == 1 && !r.failing {
			klog.ErrorS(err, "Failed to send an event, retrying later", "reason", e.Reason)
		}
		r.failing = true
		time.AfterFunc(min(minPause<<(e.tries-1), maxPause), func() { r.queue <- e })
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pending.Return(e.Namespace, 1)
}

// isRejection reports whether the API server answered with an error that a
// retry would not end.
func isRejection(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status) &&
		!apierrors.IsServerTimeout(err) && !apierrors.IsTimeout(err) && !apierrors.IsInternalError(err) &&
		!apierrors.IsServiceUnavailable(err) && !apierrors.IsTooManyRequests(err)
}

// trySend creates an event, or counts it if it is equal to an earlier one.
func (r *eventRecorder) trySend(ctx context.Context, event *eventsv1.Event) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	key := seriesKey{event.Regarding, event.Type, event.Reason, event.Action, event.Note}
	if first := r.series[key]; first != nil {
		err := r.count(ctx, first, event.EventTime)
		if !apierrors.IsNotFound(err) { // deleted, or expired
			return err
		}
	}
	err := r.client.Post().MaxRetries(0).Namespace(event.Namespace).Resource("events").Body(event).Do(ctx).Error()
	if err == nil || apierrors.IsAlreadyExists(err) { // the response to an earlier request was lost
		r.series[key] = event
		return nil
	}
	return err
}

// count adds an event to the series that began with first.
func (r *eventRecorder) count(ctx context.Context, first *eventsv1.Event, at metav1.MicroTime) error {
	series := eventsv1.EventSeries{Count: 2, LastObservedTime: first.EventTime}
	if first.Series != nil {
		series = *first.Series
		series.Count++
	}
	if series.LastObservedTime.Before(&at) { // an event that was sent late is older than the series
		series.LastObservedTime = at
	}
	patch, err := json.Marshal(map[string]any{"series": series})
	if err != nil {
		return err
	}
	err = r.client.Patch(types.MergePatchType).MaxRetries(0).Namespace(first.Namespace).Resource("events").
		Name(first.Name).Body(patch).Do(ctx).Error()
	if err == nil {
		first.Series = &series
	}
	return err
}

// endSeries forgets the series without an event in the last minutes.
func (r *eventRecorder) endSeries(now time.Time) {
	maps.DeleteFunc(r.series, func(_ seriesKey, first *eventsv1.Event) bool {
		last := first.EventTime
		if first.Series != nil {
			last = first.Series.LastObservedTime
		}
		return now.Sub(last.Time) > seriesEnd
	})
}
