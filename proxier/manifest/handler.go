package manifest

import (
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

// Handler receives what the directory says. All calls come from the goroutine that called Run. The objects
// are complete and must not be changed. An update passes the very object that was delivered before as old.
//
// The first round is OnServiceCIDRsChanged if there are any, an Add for each object, the three calls that end in
// Synced, and Sync. Each later round holds at least one change and ends with Sync.
// See changes for the order within a round.
type Handler interface {
	OnServiceAdd(service *corev1.Service)
	OnServiceUpdate(old, new *corev1.Service)
	OnServiceDelete(service *corev1.Service)
	OnServiceSynced()

	OnEndpointSliceAdd(slice *discoveryv1.EndpointSlice)
	OnEndpointSliceUpdate(old, new *discoveryv1.EndpointSlice)
	OnEndpointSliceDelete(slice *discoveryv1.EndpointSlice)
	OnEndpointSlicesSynced()

	// All Nodes are delivered, the receiver picks its own.
	OnNodeAdd(node *corev1.Node)
	OnNodeUpdate(old, new *corev1.Node)
	OnNodeDelete(node *corev1.Node)
	OnNodeSynced()

	// OnServiceCIDRsChanged gives the CIDRs of all ServiceCIDR objects, sorted, each once.
	OnServiceCIDRsChanged(cidrs []string)

	// Sync ends a round of changes: what was delivered so far is a state of the directory.
	Sync()
}
