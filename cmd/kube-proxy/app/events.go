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

// maxNote is the longest note that the API takes, in bytes.
const maxNote = 1024

// eventRecorder sends events to the API server. It is a cluster.EventRecorder.
//
// Its broadcaster sends an event that repeats an earlier one, with the same
// object and reason, as a series. Its limits bound the number of events of the
// proxier, see [eventLimits].
type eventRecorder struct {
	broadcaster events.EventBroadcaster
	recorder    events.EventRecorder
	limits      *eventLimits
}

// newEventRecorder returns an eventRecorder that sends events with a client. No
// other requests must share the client's rate limiter: events would delay them.
func newEventRecorder(client kubernetes.Interface) *eventRecorder {
	b := events.NewBroadcaster(&events.EventSinkImpl{Interface: client.EventsV1()})
	return &eventRecorder{broadcaster: b, recorder: b.NewRecorder(scheme.Scheme, "kube-proxy"), limits: newEventLimits()}
}

// start begins to send events, until run ends. Those of before are lost. That ctx ends does not fail those that are being sent.
func (r *eventRecorder) start(ctx context.Context) error {
	if err := r.broadcaster.StartRecordingToSinkWithContext(context.WithoutCancel(ctx)); err != nil {
		return fmt.Errorf("record events: %w", err)
	}
	return nil
}

// run sends events, once started, until ctx ends.
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
	r.recorder.Eventf(referenceOf(e), nil, corev1.EventTypeWarning, e.Reason, "ProgramServices", "%s", cut(e.Note, maxNote))
}

// tellStart records that this proxy starts, as an event of its node.
func (r *eventRecorder) tellStart(nodeName string) {
	node := &corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: nodeName}
	r.recorder.Eventf(node, nil, corev1.EventTypeNormal, "Starting", "StartKubeProxy", "")
}

// tellListenFailure records that an address cannot be listened on, as an event of this proxy's node.
func (r *eventRecorder) tellListenFailure(nodeName, reason string, err error) {
	node := &corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: nodeName}
	r.recorder.Eventf(node, nil, corev1.EventTypeWarning, reason, "StartKubeProxy", "%s", cut(err.Error(), maxNote))
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

// cut returns s, or what of its first n bytes is whole characters.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n], "")
}
