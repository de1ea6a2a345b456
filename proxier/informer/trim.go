package informer

import (
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// trimNode returns a Node with the fields that a proxier reads.
func trimNode(node *corev1.Node) *corev1.Node {
	spec := &node.Spec
	return &corev1.Node{
		ObjectMeta: trimMeta(&node.ObjectMeta, corev1.LabelTopologyZone),
		Spec:       corev1.NodeSpec{PodCIDR: spec.PodCIDR, PodCIDRs: spec.PodCIDRs, Taints: spec.Taints},
		Status:     corev1.NodeStatus{Addresses: node.Status.Addresses},
	}
}

// trimServiceCIDR returns a ServiceCIDR with the fields that a proxier reads.
func trimServiceCIDR(cidr *networkingv1.ServiceCIDR) *networkingv1.ServiceCIDR {
	return &networkingv1.ServiceCIDR{ObjectMeta: trimMeta(&cidr.ObjectMeta), Spec: cidr.Spec}
}

// trimMeta returns the name, the fields that distinguish versions, the
// timestamps, and the given labels.
func trimMeta(m *metav1.ObjectMeta, labels ...string) metav1.ObjectMeta {
	trimmed := metav1.ObjectMeta{
		Name: m.Name, Namespace: m.Namespace, UID: m.UID, ResourceVersion: m.ResourceVersion,
		CreationTimestamp: m.CreationTimestamp, DeletionTimestamp: m.DeletionTimestamp,
	}
	for _, label := range labels {
		if v, ok := m.Labels[label]; ok {
			metav1.SetMetaDataLabel(&trimmed, label, v)
		}
	}
	return trimmed
}
