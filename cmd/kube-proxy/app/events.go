package app

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nftproxy/nftproxy/proxier/cluster"
)

// component is the name of this program in events.
const component = "kube-proxy"

// maxNote is the longest note that the API accepts, in bytes.
const maxNote = 1024

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
