package informer

import (
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// trim removes the fields of an object that a proxier does not read. It is a
// cache.TransformFunc, which can be called again with its own result.
func trim(obj any) (any, error) {
	switch o := obj.(type) {
	case *corev1.Node:
		trimNode(o)
	case *networkingv1.ServiceCIDR:
		trimMeta(&o.ObjectMeta)
	}
	return obj, nil
}

// trimMeta keeps the name, the fields that distinguish versions, the
// timestamps, and the given labels.
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
