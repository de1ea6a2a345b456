package informer

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/nftproxy/nftproxy/proxier/translate"
)

// collection is a selection of the objects of a kind in the API server.
type collection struct {
	client   rest.Interface
	resource string                    // the plural in the URL
	choose   func(*metav1.ListOptions) // adds the selectors to a request
	// list is used if client has no connection, as in a fake clientset.
	list  func(context.Context, metav1.ListOptions) (runtime.Object, error)
	watch func(context.Context, metav1.ListOptions) (watch.Interface, error)
}

// servicesOf returns the collection of Services, without headless ones and
// those of other proxies.
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
