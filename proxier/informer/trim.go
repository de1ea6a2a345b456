package informer

import (
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nftproxy/nftproxy/proxier"
)

// trim makes of an object what is kept of it: of Services and EndpointSlices, of which there are many, what a proxier makes of them; of other
// objects what a proxier reads. Informers call it before they keep the object, also for what it returned before.
func trim(obj any) (any, error) {
	switch o := obj.(type) {
	case *corev1.Service:
		return newKept(&o.ObjectMeta, proxier.TranslateService(o)), nil
	case *discoveryv1.EndpointSlice:
		return newKept(&o.ObjectMeta, proxier.TranslateEndpointSlice(o)), nil
	case *corev1.Node:
		trimNode(o)
	case *networkingv1.ServiceCIDR:
		trimMeta(&o.ObjectMeta)
	}
	return obj, nil
}

// kept is a translated object and what informers read of its metadata.
type kept[T any] struct {
	metav1.Object // nil: nobody asks for the rest
	namespace     string
	name          string
	version       string
	uid           types.UID
	value         T
}

type (
	keptService = kept[*proxier.TranslatedService]
	keptSlice   = kept[*proxier.TranslatedEndpointSlice]
)

func newKept[T any](m *metav1.ObjectMeta, value T) *kept[T] {
	return &kept[T]{namespace: m.Namespace, name: m.Name, version: m.ResourceVersion, uid: m.UID, value: value}
}

// GetNamespace implements metav1.Object.
func (k *kept[T]) GetNamespace() string { return k.namespace }

// GetName implements metav1.Object.
func (k *kept[T]) GetName() string { return k.name }

// GetResourceVersion implements metav1.Object.
func (k *kept[T]) GetResourceVersion() string { return k.version }

// GetUID implements metav1.Object.
func (k *kept[T]) GetUID() types.UID { return k.uid }

// trimMeta leaves the name, what tells versions apart, the times, and the named labels.
func trimMeta(m *metav1.ObjectMeta, labels ...string) {
	all := m.Labels
	*m = metav1.ObjectMeta{
		Name: m.Name, Namespace: m.Namespace, UID: m.UID, ResourceVersion: m.ResourceVersion,
		CreationTimestamp: m.CreationTimestamp, DeletionTimestamp: m.DeletionTimestamp,
	}
	for _, label := range labels {
		if v, ok := all[label]; ok {
			metav1.SetMetaDataLabel(m, label, v)
		}
	}
}

func trimNode(node *corev1.Node) {
	trimMeta(&node.ObjectMeta, corev1.LabelTopologyZone)
	node.Spec = corev1.NodeSpec{PodCIDR: node.Spec.PodCIDR, PodCIDRs: node.Spec.PodCIDRs, Taints: node.Spec.Taints}
	node.Status = corev1.NodeStatus{Addresses: node.Status.Addresses}
}
