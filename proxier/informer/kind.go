package informer

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/informer/apiclient"
	"github.com/nftproxy/nftproxy/proxier/translate"
)

// kind is a kind whose objects are translated while a list arrives, or a
// selection of its objects. N is the name of an object, V its translation, O
// the API type.
type kind[N comparable, V any, O object] struct {
	name           string // of the kind in the API
	group          func(*apiclient.Client) rest.Interface
	labels, fields string // selectors, empty for all objects

	new       func() O
	unread    unread // fields of O that translate does not read
	translate func(O) V
	// identify returns the name and the UID of a translation.
	identify func(V) (name N, uid string)
	// reset empties an object, and keeps memory that the next one can use. The
	// translation shares only strings with that memory.
	reset func(O)
}

// The selectors leave out Services without a ClusterIP, their EndpointSlices,
// and Services of other proxies.
var (
	services = kind[cluster.ServiceName, *translate.Service, *corev1.Service]{
		name:      "Service",
		group:     func(c *apiclient.Client) rest.Interface { return c.Core },
		labels:    "!" + translate.LabelServiceProxyName,
		fields:    fields.OneTermNotEqualSelector("spec.clusterIP", corev1.ClusterIPNone).String(),
		new:       func() *corev1.Service { return new(corev1.Service) },
		unread:    unreadService,
		translate: translate.ParseService,
		identify:  func(s *translate.Service) (cluster.ServiceName, string) { return s.Name, s.UID },
		reset: func(o *corev1.Service) {
			*o = corev1.Service{ObjectMeta: emptyMeta(o.ObjectMeta), Spec: corev1.ServiceSpec{Ports: o.Spec.Ports[:0]}}
		},
	}
	endpointSlices = kind[translate.SliceName, *translate.EndpointSlice, *discoveryv1.EndpointSlice]{
		name:      "EndpointSlice",
		group:     func(c *apiclient.Client) rest.Interface { return c.Discovery },
		labels:    "!" + corev1.IsHeadlessService,
		new:       func() *discoveryv1.EndpointSlice { return new(discoveryv1.EndpointSlice) },
		unread:    unreadEndpointSlice,
		translate: translate.ParseEndpointSlice,
		identify:  func(s *translate.EndpointSlice) (translate.SliceName, string) { return s.Name, s.UID },
		reset: func(o *discoveryv1.EndpointSlice) {
			*o = discoveryv1.EndpointSlice{
				ObjectMeta: emptyMeta(o.ObjectMeta), Endpoints: o.Endpoints[:0], Ports: o.Ports[:0],
			}
		},
	}
	nodes = kind[string, *corev1.Node, *corev1.Node]{
		name:      "Node",
		group:     func(c *apiclient.Client) rest.Interface { return c.Core },
		new:       func() *corev1.Node { return new(corev1.Node) },
		translate: (*corev1.Node).DeepCopy,
		identify:  func(n *corev1.Node) (name, uid string) { return n.Name, string(n.UID) },
		reset:     func(o *corev1.Node) { *o = corev1.Node{} },
	}
	serviceCIDRs = kind[string, *networkingv1.ServiceCIDR, *networkingv1.ServiceCIDR]{
		name:      "ServiceCIDR",
		group:     func(c *apiclient.Client) rest.Interface { return c.Networking },
		new:       func() *networkingv1.ServiceCIDR { return new(networkingv1.ServiceCIDR) },
		translate: (*networkingv1.ServiceCIDR).DeepCopy,
		identify:  func(c *networkingv1.ServiceCIDR) (name, uid string) { return c.Name, string(c.UID) },
		reset:     func(o *networkingv1.ServiceCIDR) { *o = networkingv1.ServiceCIDR{} },
	}
)

// request returns a request for the objects.
func (k kind[N, V, O]) request(client *apiclient.Client, o metav1.ListOptions) *rest.Request {
	o.LabelSelector, o.FieldSelector = k.labels, k.fields
	resource := strings.ToLower(k.name) + "s"
	return k.group(client).Get().Resource(resource).VersionedParams(&o, metav1.ParameterCodec)
}

// emptyMeta returns metadata with the maps of m, which it empties.
func emptyMeta(m metav1.ObjectMeta) metav1.ObjectMeta {
	clear(m.Labels)
	clear(m.Annotations)
	return metav1.ObjectMeta{Labels: m.Labels, Annotations: m.Annotations}
}

// object is an object of the API.
type object interface {
	runtime.Object
	metav1.Object
	Unmarshal(protobuf []byte) error
}

// translated is the translation of a version of an object. client-go handles it
// in place of the object.
type translated[V any] struct {
	version string
	value   V
}

// translated returns the translation of an object.
func (k kind[N, V, O]) translated(o O) *translated[V] {
	return &translated[V]{o.GetResourceVersion(), k.translate(o)}
}

// same reports whether a and b are the same version of an object.
func (k kind[N, V, O]) same(a, b *translated[V]) bool {
	_, uid := k.identify(a.value)
	_, other := k.identify(b.value)
	return a.version == b.version && uid == other
}

// GetObjectKind implements runtime.Object.
func (t *translated[V]) GetObjectKind() schema.ObjectKind { return schema.EmptyObjectKind }

// DeepCopyObject implements runtime.Object. Translations are immutable, so it
// returns t.
func (t *translated[V]) DeepCopyObject() runtime.Object { return t }
