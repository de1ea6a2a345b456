package proxier

import "k8s.io/klog/v2"

// Event is something about an object that its owner should know.
type Event struct {
	// Kind, Namespace, Name and UID name the object.
	Kind, Namespace, Name, UID string
	// Reason is a word in CamelCase for programs, Note a sentence for people.
	Reason, Note string
}

// Reasons of events.
const (
	// ReasonAddressConflict: another Service has the same address and port.
	ReasonAddressConflict = "AddressConflict"
	// ReasonRefused: the kernel refused what a Service needs.
	ReasonRefused = "RefusedByKernel"
	// ReasonInvalid: a part of a Service or EndpointSlice makes no sense and was skipped.
	ReasonInvalid = "InvalidObject"
)

// EventRecorder takes warnings about objects, as the Kubernetes API does. It must not block.
type EventRecorder interface{ Record(Event) }

// recordEvent writes an event to the log and to the recorder, if there is one.
func recordEvent(to EventRecorder, e Event) {
	klog.InfoS("Warning", "kind", e.Kind, "object", klog.KRef(e.Namespace, e.Name), "reason", e.Reason, "note", e.Note)
	if to != nil {
		to.Record(e)
	}
}

// serviceEvent is an event about a Service.
func serviceEvent(svc *Service, reason, note string) Event {
	return Event{Kind: "Service", Namespace: svc.Name.Namespace, Name: svc.Name.Name, UID: svc.UID, Reason: reason, Note: note}
}
