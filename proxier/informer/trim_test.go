package informer

import (
	"reflect"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nftproxy/nftproxy/proxier/translate"
)

// fullMeta returns metadata with all fields.
func fullMeta() metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name: "web", Namespace: "default", UID: "u", ResourceVersion: "7", Generation: 3, GenerateName: "web-",
		CreationTimestamp: metav1.Unix(1000, 0), DeletionTimestamp: &metav1.Time{Time: time.Unix(2000, 0)},
		Finalizers: []string{"f"},
		Labels: map[string]string{
			"app": "web", translate.LabelServiceProxyName: "other", corev1.IsHeadlessService: "",
			discoveryv1.LabelServiceName: "web", corev1.LabelTopologyZone: "z",
		},
		Annotations: map[string]string{
			"note": "long", translate.AnnotationBalance: "source-hash", translate.AnnotationHashTableSize: "503",
			translate.AnnotationWeight: "50", corev1.EndpointsLastChangeTriggerTime: "2026-01-02T03:04:05Z",
		},
		OwnerReferences: []metav1.OwnerReference{{Name: "o"}},
		ManagedFields:   []metav1.ManagedFieldsEntry{{Manager: "kubectl"}},
	}
}

// keptMeta returns the fields of fullMeta that trim keeps.
func keptMeta(labels map[string]string) metav1.ObjectMeta {
	full := fullMeta()
	return metav1.ObjectMeta{
		Name: full.Name, Namespace: full.Namespace, UID: full.UID, ResourceVersion: full.ResourceVersion,
		CreationTimestamp: full.CreationTimestamp, DeletionTimestamp: full.DeletionTimestamp, Labels: labels,
	}
}

func TestTrim(t *testing.T) {
	taints := []corev1.Taint{{Key: "k"}}
	podCIDRs := []string{"10.244.0.0/24"}
	addresses := []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.0.2.2"}}
	cidrs := networkingv1.ServiceCIDRSpec{CIDRs: []string{"10.96.0.0/16"}}
	for _, tt := range []struct{ got, want any }{
		{
			trimNode(&corev1.Node{
				ObjectMeta: fullMeta(),
				Spec: corev1.NodeSpec{
					PodCIDR: "10.244.0.0/24", PodCIDRs: podCIDRs, Taints: taints, ProviderID: "p",
				},
				Status: corev1.NodeStatus{
					Addresses: addresses, Images: []corev1.ContainerImage{{Names: []string{"i"}}}, Phase: "p",
				},
			}),
			&corev1.Node{
				ObjectMeta: keptMeta(map[string]string{corev1.LabelTopologyZone: "z"}),
				Spec:       corev1.NodeSpec{PodCIDR: "10.244.0.0/24", PodCIDRs: podCIDRs, Taints: taints},
				Status:     corev1.NodeStatus{Addresses: addresses},
			},
		},
		{
			trimServiceCIDR(&networkingv1.ServiceCIDR{ObjectMeta: fullMeta(), Spec: cidrs}),
			&networkingv1.ServiceCIDR{ObjectMeta: keptMeta(nil), Spec: cidrs},
		},
	} {
		if !reflect.DeepEqual(tt.got, tt.want) {
			t.Errorf("got %+v\nwant %+v", tt.got, tt.want)
		}
	}
}
