package informer

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/translate"
)

// Handler receives what the API server tells, as *proxier.Proxier does. What it receives must not be modified. Its methods are called from several
// goroutines.
//
// The methods that end in Synced are called once, after everything that there was of a kind was told: first OnNodeSynced, then the others.
type Handler interface {
	SetService(*translate.Service)
	DeleteService(cluster.ServiceName)
	OnServiceSynced()

	SetEndpointSlice(*translate.EndpointSlice)
	DeleteEndpointSlice(translate.SliceName)
	OnEndpointSlicesSynced()

	OnNodeUpdate(old, new *corev1.Node)
	OnNodeDelete(node *corev1.Node)
	OnNodeSynced()

	// OnServiceCIDRsChanged gives the CIDRs of all ServiceCIDR objects, sorted, each once.
	OnServiceCIDRsChanged(cidrs []string)
}
