package manifest

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"

	"github.com/nftproxy/nftproxy/proxier/suggest"
)

const kindList = "List"

// versions are the group and version of each supported kind.
var versions = map[string]schema.GroupVersion{
	string(kindService):       corev1.SchemeGroupVersion,
	string(kindNode):          corev1.SchemeGroupVersion,
	string(kindEndpointSlice): discoveryv1.SchemeGroupVersion,
	string(kindServiceCIDR):   networkingv1.SchemeGroupVersion,
	kindList:                  corev1.SchemeGroupVersion,
}

// newDecoder returns a strict decoder of the supported kinds. It decodes
// lists, including typed lists such as ServiceList, to metav1.List. This way
// each item is decoded separately and has its own errors.
func newDecoder() runtime.Decoder {
	scheme := runtime.NewScheme()
	scheme.AddKnownTypes(corev1.SchemeGroupVersion, &corev1.Service{}, &corev1.Node{})
	scheme.AddKnownTypes(discoveryv1.SchemeGroupVersion, &discoveryv1.EndpointSlice{})
	scheme.AddKnownTypes(networkingv1.SchemeGroupVersion, &networkingv1.ServiceCIDR{})
	for kind, version := range versions {
		scheme.AddKnownTypeWithName(version.WithKind(strings.TrimSuffix(kind, kindList)+kindList), &metav1.List{})
	}
	return json.NewSerializerWithOptions(json.DefaultMetaFactory, scheme, scheme, json.SerializerOptions{Strict: true})
}

// misspelled returns an error if a type that is not supported is close to one
// that is. Types of other programs, such as the Services of Knative, are not.
func misspelled(got schema.GroupVersionKind) error {
	stem, list := strings.CutSuffix(got.Kind, kindList)
	if stem == "" {
		stem, list = kindList, false
	}
	meant, ok := suggest.Closest(stem, string(kindService), string(kindEndpointSlice), string(kindNode),
		string(kindServiceCIDR), kindList)
	version := versions[meant]
	if _, near := suggest.Closest(got.Group, version.Group); !ok || !near && !ofKubernetes(got.Group) {
		return nil
	}
	if list {
		meant += kindList
	}
	switch gotVersion := got.GroupVersion(); {
	case gotVersion == version:
		return fmt.Errorf("kind: %q is unknown: did you mean %q?", got.Kind, meant)
	case got.Kind == meant:
		return fmt.Errorf("apiVersion: %q of %s is not supported: did you mean %q?", gotVersion, meant, version)
	default:
		return fmt.Errorf("kind: %q of %q is unknown: did you mean %q of %q?", got.Kind, gotVersion, meant, version)
	}
}

// ofKubernetes reports whether an API group belongs to Kubernetes.
func ofKubernetes(group string) bool {
	return !strings.Contains(group, ".") || strings.HasSuffix(group, ".k8s.io")
}
