package app

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"

	"github.com/nftproxy/nftproxy/proxier/cluster"
)

// maxNote is the longest note that the API accepts, in bytes.
const maxNote = 1024

// eventRecorder sends events to the API server. It implements
// cluster.EventRecorder.
//
// The broadcaster sends events with the same object and reason as a series.
// [eventLimits] limits the number of events of the proxier.
type eventRecorder struct {
	broadcaster events.EventBroadcaster
	recorder    events.EventRecorder
	limits      *eventLimits
}

// newEventRecorder returns an eventRecorder that sends events with client.
// Other requests must not share the client's rate limiter: events would delay
// them.
func newEventRecorder(client kubernetes.Interface) *eventRecorder {
	b := events.NewBroadcaster(&events.EventSinkImpl{Interface: client.EventsV1()})
	r := b.NewRecorder(scheme.Scheme, "kube-proxy")
	return &eventRecorder{broadcaster: b, recorder: r, limits: newEventLimits()}
}

// start starts sending events; run stops it. Events recorded before start are
// lost. The end of ctx does not cancel requests in flight.
func (r *eventRecorder) start(ctx context.Context) error {
	if err := r.broadcaster.StartRecordingToSinkWithContext(context.WithoutCancel(ctx)); err != nil {
		return fmt.Errorf("record events: %w", err)
	}
	return nil
}

// run waits until ctx ends and stops sending events.
func (r *eventRecorder) run(ctx context.Context) error {
	<-ctx.Done()
	r.broadcaster.Shutdown()
	return nil
}

// Record implements cluster.EventRecorder. It drops events above the limits.
func (r *eventRecorder) Record(e cluster.Event) {
	if !r.limits.allow(e) {
		return
	}
	r.recorder.Eventf(referenceOf(e), nil, corev1.EventTypeWarning, e.Reason, "ProgramServices",
		"%s", truncate(e.Note, maxNote))
}

// recordStart records that this proxy starts, as an event of its node.
func (r *eventRecorder) recordStart(nodeName string) {
	r.recorder.Eventf(nodeReference(nodeName), nil, corev1.EventTypeNormal, "Starting", "StartKubeProxy", "")
}

// recordServerFailure records that an HTTP server failed, as an event of this
// proxy's node.
func (r *eventRecorder) recordServerFailure(nodeName, reason string, err error) {
	r.recorder.Eventf(nodeReference(nodeName), nil, corev1.EventTypeWarning, reason, "StartKubeProxy",
		"%s", truncate(err.Error(), maxNote))
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
