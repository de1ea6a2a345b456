package cluster

// Event is a warning about an object, for the object's owner.
type Event struct {
	// Kind, Namespace, Name and UID identify the object.
	Kind, Namespace, Name, UID string
	// Reason is a machine-readable word in CamelCase, Note a sentence.
	Reason, Note string
}

// Reasons of events.
const (
	// ReasonAddressConflict means that another Service has the same address and
	// port.
	ReasonAddressConflict = "AddressConflict"
	// ReasonRefused means that the kernel refused the rules of a Service.
	ReasonRefused = "RefusedByKernel"
	// ReasonNotServed means that a service port cannot be served.
	ReasonNotServed = "NotServed"
	// ReasonBudget means that a Service has more rows than its budgets allow.
	ReasonBudget = "BudgetExceeded"
	// ReasonBalance means that hashes or weights of a Service have no effect,
	// or a limited one.
	ReasonBalance = "BalanceLimited"
	// ReasonEjected means that endpoints of a Service get no new connections
	// because they do not answer, ReasonReturned that they get some again.
	ReasonEjected  = "EndpointEjected"
	ReasonReturned = "EndpointReturned"
	// ReasonNotEjected means that so many endpoints do not answer that none is
	// ejected.
	ReasonNotEjected = "NoEndpointEjected"
	// ReasonInvalid means that invalid fields of an object are ignored.
	ReasonInvalid = "InvalidObject"
)

// EventRecorder records events, for example in the Kubernetes API. Record must
// not block.
type EventRecorder interface{ Record(Event) }

// NewEvent returns an event about a Service.
func NewEvent(svc *Service, reason, note string) Event {
	return Event{
		Kind: "Service", Namespace: svc.Name.Namespace, Name: svc.Name.Name, UID: svc.UID, Reason: reason, Note: note,
	}
}
