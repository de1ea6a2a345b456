package manifest

import (
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
)

// newDecoder returns a strict decoder of the supported kinds. It decodes
// lists, including typed lists such as ServiceList, to metav1.List. This way
// each item is decoded separately and has its own errors.
func newDecoder() runtime.Decoder {
	scheme := runtime.NewScheme()
	scheme.AddKnownTypes(corev1.SchemeGroupVersion, &corev1.Service{}, &corev1.Node{})
	scheme.AddKnownTypes(discoveryv1.SchemeGroupVersion, &discoveryv1.EndpointSlice{})
	scheme.AddKnownTypes(networkingv1.SchemeGroupVersion, &networkingv1.ServiceCIDR{})

	scheme.AddKnownTypeWithName(corev1.SchemeGroupVersion.WithKind("List"), &metav1.List{})
	scheme.AddKnownTypeWithName(corev1.SchemeGroupVersion.WithKind("ServiceList"), &metav1.List{})
	scheme.AddKnownTypeWithName(corev1.SchemeGroupVersion.WithKind("NodeList"), &metav1.List{})
	scheme.AddKnownTypeWithName(discoveryv1.SchemeGroupVersion.WithKind("EndpointSliceList"), &metav1.List{})
	scheme.AddKnownTypeWithName(networkingv1.SchemeGroupVersion.WithKind("ServiceCIDRList"), &metav1.List{})
	return json.NewSerializerWithOptions(json.DefaultMetaFactory, scheme, scheme, json.SerializerOptions{Strict: true})
}
