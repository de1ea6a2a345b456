package informer

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/translate"
)

// The kinds of objects of which there are many.
var (
	services = kind[cluster.ServiceName, *translate.Service, *corev1.Service]{
		name: "Service",
		new:  func() *corev1.Service { return new(corev1.Service) },
		translate: func(o *corev1.Service) *translated[cluster.ServiceName, *translate.Service] {
			t := translate.ParseService(o)
			return newTranslated(t.Name, o, t)
		},
	}
	endpointSlices = kind[translate.SliceName, *translate.EndpointSlice, *discoveryv1.EndpointSlice]{
		name: "EndpointSlice",
		new:  func() *discoveryv1.EndpointSlice { return new(discoveryv1.EndpointSlice) },
		translate: func(o *discoveryv1.EndpointSlice) *translated[translate.SliceName, *translate.EndpointSlice] {
			t := translate.ParseEndpointSlice(o)
			return newTranslated(t.Name, o, t)
		},
	}
)

// servicesOf returns the collection of Services, without headless ones and those
// of other proxies.
func servicesOf(client kubernetes.Interface) collection {
	all := client.CoreV1().Services(metav1.NamespaceAll)
	return collection{
		client: client.CoreV1().RESTClient(), resource: "services", watch: all.Watch,
		list: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return all.List(ctx, o) },
		choose: func(o *metav1.ListOptions) {
			o.LabelSelector = "!" + translate.LabelServiceProxyName
			o.FieldSelector = fields.OneTermNotEqualSelector("spec.clusterIP", corev1.ClusterIPNone).String()
		},
	}
}

// endpointSlicesOf returns the collection of EndpointSlices, without those of
// headless Services.
func endpointSlicesOf(client kubernetes.Interface) collection {
	all := client.DiscoveryV1().EndpointSlices(metav1.NamespaceAll)
	return collection{
		client: client.DiscoveryV1().RESTClient(), resource: "endpointslices", watch: all.Watch,
		list:   func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return all.List(ctx, o) },
		choose: func(o *metav1.ListOptions) { o.LabelSelector = "!" + corev1.IsHeadlessService },
	}
}

// newReflector returns what follows the objects of a kind and calls set and remove, and whether all that there was at first was told.
func newReflector[N comparable, V any, O object](k kind[N, V, O], from collection, resync time.Duration, set func(V), remove func(N)) (
	*cache.Reflector, cache.InformerSynced,
) {
	const leastResync = time.Second // as informers have it
	if resync > 0 {
		resync = max(resync, leastResync)
	}
	s := &store[N, V, O]{kind: k, set: set, remove: remove}
	r := cache.NewReflectorWithOptions(newListWatcher(k, from), k.new(), s, cache.ReflectorOptions{Name: k.name, ResyncPeriod: resync})
	return r, s.told
}
