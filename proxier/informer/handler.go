package informer

import (
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

// Handler receives what the API server tells, as *proxier.Proxier does. Objects must not be modified. Its methods are called from several goroutines.
//
// The methods that end in Synced are called once, after everything that there was of a kind was added: first OnNodeSynced, then the others.
type Handler interface {
	OnServiceAdd(service *corev1.Service)
	OnServiceUpdate(old, new *corev1.Service)
	OnServiceDelete(service *corev1.Service)
	OnServiceSynced()

	OnEndpointSliceAdd(slice *discoveryv1.EndpointSlice)
	OnEndpointSliceUpdate(old, new *discoveryv1.EndpointSlice)
	OnEndpointSliceDelete(slice *discoveryv1.EndpointSlice)
	OnEndpointSlicesSynced()

	OnNodeAdd(node *corev1.Node)
	OnNodeUpdate(old, new *corev1.Node)
	OnNodeDelete(node *corev1.Node)
	OnNodeSynced()

	// OnServiceCIDRsChanged gives the CIDRs of all ServiceCIDR objects, sorted, each once.
	OnServiceCIDRsChanged(cidrs []string)
}
