package informer

import (
	"reflect"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/tools/cache"
)

// fullMeta is metadata of which every kind of object keeps a part.
func fullMeta() metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name: "web", Namespace: "default", UID: "u", ResourceVersion: "7", Generation: 3, GenerateName: "web-",
		CreationTimestamp: metav1.Unix(1000, 0), DeletionTimestamp: &metav1.Time{Time: time.Unix(2000, 0)}, Finalizers: []string{"f"},
		Labels: map[string]string{
			"app": "web", labelServiceProxyName: "other", corev1.IsHeadlessService: "", discoveryv1.LabelServiceName: "web",
			corev1.LabelTopologyZone: "z",
		},
		Annotations:     map[string]string{"note": "long", corev1.EndpointsLastChangeTriggerTime: "2026-01-02T03:04:05Z"},
		OwnerReferences: []metav1.OwnerReference{{Name: "o"}},
		ManagedFields:   []metav1.ManagedFieldsEntry{{Manager: "kubectl"}},
	}
}

// keptMeta is what is left of it.
func keptMeta(labels, annotations map[string]string) metav1.ObjectMeta {
	full := fullMeta()
	return metav1.ObjectMeta{
		Name: full.Name, Namespace: full.Namespace, UID: full.UID, ResourceVersion: full.ResourceVersion,
		CreationTimestamp: full.CreationTimestamp, DeletionTimestamp: full.DeletionTimestamp, Labels: labels, Annotations: annotations,
	}
}

func TestTrim(t *testing.T) {
	name, ready := "x", true
	serviceSpec := corev1.ServiceSpec{
		ClusterIP: "10.96.0.1", ClusterIPs: []string{"10.96.0.1"}, Type: corev1.ServiceTypeLoadBalancer,
		Ports: []corev1.ServicePort{{Name: "http", Port: 80, TargetPort: intstr.FromInt32(8080)}},
	}
	fullSpec := serviceSpec
	fullSpec.Selector = map[string]string{"app": "web"}
	balancer := corev1.LoadBalancerStatus{Ingress: []corev1.LoadBalancerIngress{{IP: "192.0.2.1"}}}
	endpoint := discoveryv1.Endpoint{
		Addresses: []string{"10.244.0.1"}, NodeName: &name, Conditions: discoveryv1.EndpointConditions{Ready: &ready},
		Hints: &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: "z"}}},
	}
	fullEndpoint := endpoint
	fullEndpoint.TargetRef, fullEndpoint.Hostname, fullEndpoint.Zone = &corev1.ObjectReference{Name: "pod"}, &name, &name
	fullEndpoint.DeprecatedTopology = map[string]string{"a": "b"}
	taints := []corev1.Taint{{Key: "k"}}
	addresses := []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.0.2.2"}}
	sliceLabels := map[string]string{discoveryv1.LabelServiceName: "web", labelServiceProxyName: "other", corev1.IsHeadlessService: ""}

	for _, tt := range []struct{ full, want any }{
		{
			&corev1.Service{ObjectMeta: fullMeta(), Spec: fullSpec, Status: corev1.ServiceStatus{LoadBalancer: balancer, Conditions: []metav1.Condition{{}}}},
			&corev1.Service{
				ObjectMeta: keptMeta(map[string]string{labelServiceProxyName: "other", corev1.IsHeadlessService: ""}, nil),
				Spec:       serviceSpec, Status: corev1.ServiceStatus{LoadBalancer: balancer},
			},
		},
		{
			&discoveryv1.EndpointSlice{ObjectMeta: fullMeta(), AddressType: "IPv4", Endpoints: []discoveryv1.Endpoint{fullEndpoint}},
			&discoveryv1.EndpointSlice{
				ObjectMeta:  keptMeta(sliceLabels, map[string]string{corev1.EndpointsLastChangeTriggerTime: "2026-01-02T03:04:05Z"}),
				AddressType: "IPv4", Endpoints: []discoveryv1.Endpoint{endpoint},
			},
		},
		{
			&corev1.Node{
				ObjectMeta: fullMeta(),
				Spec:       corev1.NodeSpec{PodCIDR: "10.244.0.0/24", PodCIDRs: []string{"10.244.0.0/24"}, Taints: taints, ProviderID: "p"},
				Status:     corev1.NodeStatus{Addresses: addresses, Images: []corev1.ContainerImage{{Names: []string{"i"}}}, Phase: "p"},
			},
			&corev1.Node{
				ObjectMeta: keptMeta(map[string]string{corev1.LabelTopologyZone: "z"}, nil),
				Spec:       corev1.NodeSpec{PodCIDR: "10.244.0.0/24", PodCIDRs: []string{"10.244.0.0/24"}, Taints: taints},
				Status:     corev1.NodeStatus{Addresses: addresses},
			},
		},
		{
			&networkingv1.ServiceCIDR{ObjectMeta: fullMeta(), Spec: networkingv1.ServiceCIDRSpec{CIDRs: []string{"10.96.0.0/16"}}},
			&networkingv1.ServiceCIDR{ObjectMeta: keptMeta(nil, nil), Spec: networkingv1.ServiceCIDRSpec{CIDRs: []string{"10.96.0.0/16"}}},
		},
		{cache.DeletedFinalStateUnknown{Key: "k"}, cache.DeletedFinalStateUnknown{Key: "k"}},
	} {
		got, err := trim(tt.full)
		if err != nil || !reflect.DeepEqual(got, tt.want) {
			t.Errorf("got %v, %+v\nwant %+v", err, got, tt.want)
		}
	}
}
