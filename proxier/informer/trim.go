package informer

import (
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
)

// labelServiceProxyName marks objects that another service proxy takes care of.
const labelServiceProxyName = "service.kubernetes.io/service-proxy-name"

// trim leaves of an object what a proxier reads. Informers call it before they keep the object, which is theirs alone by then.
func trim(obj any) (any, error) {
	switch o := obj.(type) {
	case cache.DeletedFinalStateUnknown:
		return o, nil // holds an object that was trimmed already
	case *corev1.Service:
		trimService(o)
	case *discoveryv1.EndpointSlice:
		trimSlice(o)
	case *corev1.Node:
		trimNode(o)
	case *networkingv1.ServiceCIDR:
		trimMeta(&o.ObjectMeta, nil, nil)
	}
	return obj, nil
}

// trimMeta leaves the name, what tells versions apart, the times, and the named labels and annotations.
func trimMeta(m *metav1.ObjectMeta, labels, annotations []string) {
	*m = metav1.ObjectMeta{
		Name: m.Name, Namespace: m.Namespace, UID: m.UID, ResourceVersion: m.ResourceVersion,
		CreationTimestamp: m.CreationTimestamp, DeletionTimestamp: m.DeletionTimestamp,
		Labels: pick(m.Labels, labels), Annotations: pick(m.Annotations, annotations),
	}
}

// pick returns the entries of these keys; nil if there is none.
func pick(from map[string]string, keys []string) map[string]string {
	var out map[string]string
	for _, k := range keys {
		if v, ok := from[k]; ok {
			if out == nil {
				out = make(map[string]string, 1)
			}
			out[k] = v
		}
	}
	return out
}

func trimService(svc *corev1.Service) {
	trimMeta(&svc.ObjectMeta, []string{corev1.IsHeadlessService, labelServiceProxyName}, nil)
	svc.Spec.Selector = nil
	svc.Status = corev1.ServiceStatus{LoadBalancer: svc.Status.LoadBalancer}
}

func trimSlice(slice *discoveryv1.EndpointSlice) {
	trimMeta(&slice.ObjectMeta,
		[]string{discoveryv1.LabelServiceName, corev1.IsHeadlessService, labelServiceProxyName},
		[]string{corev1.EndpointsLastChangeTriggerTime})
	for i := range slice.Endpoints {
		e := &slice.Endpoints[i]
		e.TargetRef, e.Hostname, e.Zone, e.DeprecatedTopology = nil, nil, nil, nil
	}
}

func trimNode(node *corev1.Node) {
	trimMeta(&node.ObjectMeta, []string{corev1.LabelTopologyZone}, nil)
	node.Spec = corev1.NodeSpec{PodCIDR: node.Spec.PodCIDR, PodCIDRs: node.Spec.PodCIDRs, Taints: node.Spec.Taints}
	node.Status = corev1.NodeStatus{Addresses: node.Status.Addresses}
}
