package informer

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"

	"github.com/nftproxy/nftproxy/proxier/informer/apiclient"
	"github.com/nftproxy/nftproxy/proxier/translate"
)

// collection is a selection of the objects of a kind in the API server.
type collection struct {
	client         rest.Interface
	decoder        runtime.Decoder
	resource       string // the plural in the URL
	labels, fields string // selectors, empty for all objects
}

// request returns a request for the objects.
func (c *collection) request(o metav1.ListOptions) *rest.Request {
	o.LabelSelector, o.FieldSelector = c.labels, c.fields
	return c.client.Get().Resource(c.resource).VersionedParams(&o, metav1.ParameterCodec)
}

// watch starts a watch of the objects.
func (c *collection) watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	o.Watch = true
	return c.request(o).Watch(ctx)
}

// servicesOf returns the collection of Services, without headless ones and
// Services of other proxies.
func servicesOf(client *apiclient.Client) collection {
	withClusterIP := fields.OneTermNotEqualSelector("spec.clusterIP", corev1.ClusterIPNone)
	return collection{client.Core, client.Decoder, "services",
		"!" + translate.LabelServiceProxyName, withClusterIP.String()}
}

// endpointSlicesOf returns the collection of EndpointSlices, without slices of
// headless Services.
func endpointSlicesOf(client *apiclient.Client) collection {
	return collection{client.Discovery, client.Decoder, "endpointslices", "!" + corev1.IsHeadlessService, ""}
}

// nodesOf returns the collection of the Node with a name.
func nodesOf(client *apiclient.Client, name string) collection {
	named := fields.OneTermEqualSelector(metav1.ObjectNameField, name)
	return collection{client.Core, client.Decoder, "nodes", "", named.String()}
}

// serviceCIDRsOf returns the collection of ServiceCIDRs.
func serviceCIDRsOf(client *apiclient.Client) collection {
	return collection{client.Networking, client.Decoder, "servicecidrs", "", ""}
}
