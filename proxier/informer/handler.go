package informer

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/translate"
)

// Handler receives the objects of the API server. *proxier.Proxier implements
// it. Its methods are called from several goroutines and must not modify the
// objects.
//
// Each method that ends in Synced is called once, after all objects that
// existed at the start were delivered: first OnNodeSynced, then the others.
type Handler interface {
	SetService(*translate.Service)
	DeleteService(cluster.ServiceName)
	OnServiceSynced()

	SetEndpointSlice(*translate.EndpointSlice)
	DeleteEndpointSlice(translate.SliceName)
	OnEndpointSlicesSynced()

	// OnNodeUpdate is also called for a new Node, with old == nil.
	OnNodeUpdate(old, new *corev1.Node)
	OnNodeDelete(node *corev1.Node)
	OnNodeSynced()

	// OnServiceCIDRsChanged is called with the CIDRs of all ServiceCIDRs,
	// sorted and without duplicates.
	OnServiceCIDRsChanged(cidrs []string)
}
