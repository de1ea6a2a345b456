package manifest

import (
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

// Handler receives the objects of the directory. Run calls it from its own
// goroutine. The objects are valid and must not be modified. The old object of
// an update is the pointer that was delivered before.
//
// The first round of calls is OnServiceCIDRsChanged if there are
// ServiceCIDRs, an Update call for each object, the three Synced calls, and
// Sync. Each later round has at least one change and ends with Sync. Within a
// round, objects are added and updated before others are deleted, and no
// Service is delivered without its EndpointSlices.
type Handler interface {
	// The old object is nil for a new one.
	OnServiceUpdate(old, new *corev1.Service)
	OnServiceDelete(service *corev1.Service)
	OnServiceSynced()

	OnEndpointSliceUpdate(old, new *discoveryv1.EndpointSlice)
	OnEndpointSliceDelete(slice *discoveryv1.EndpointSlice)
	OnEndpointSlicesSynced()

	// The Node methods are called for all Nodes, not only for this machine's.
	OnNodeUpdate(old, new *corev1.Node)
	OnNodeDelete(node *corev1.Node)
	OnNodeSynced()

	// OnServiceCIDRsChanged is called with the CIDRs of all ServiceCIDRs,
	// sorted and without duplicates.
	OnServiceCIDRsChanged(cidrs []string)

	// Sync ends a round. The objects delivered so far are the objects of the
	// directory.
	Sync()
}
