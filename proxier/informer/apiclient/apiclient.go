// Package apiclient creates clients of the API server, one for each API group
// that nftproxy uses.
//
// It replaces the clientset of client-go, which links the types of all API
// groups: a third of the program and 8 MB of its resident memory.
package apiclient

import (
	"cmp"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	eventsv1 "k8s.io/api/events/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"
)

// Client has a client for each API group. They share a connection and a rate
// limiter.
type Client struct {
	Core, Discovery, Networking, Events rest.Interface
	// Decoder decodes objects of these groups, in each encoding.
	Decoder runtime.Decoder
}

// New returns a Client, which does not connect yet.
func New(config *rest.Config) (*Client, error) {
	shared := rest.CopyConfig(config)
	shared.UserAgent = cmp.Or(shared.UserAgent, rest.DefaultKubernetesUserAgent())
	if shared.RateLimiter == nil && shared.QPS > 0 {
		shared.RateLimiter = flowcontrol.NewTokenBucketRateLimiter(shared.QPS, shared.Burst)
	}
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"}) // objects of all groups, such as Status
	err := (&runtime.SchemeBuilder{
		corev1.AddToScheme, discoveryv1.AddToScheme, networkingv1.AddToScheme, eventsv1.AddToScheme,
	}).AddToScheme(scheme)
	if err != nil {
		return nil, err
	}
	codecs := serializer.NewCodecFactory(scheme)
	shared.NegotiatedSerializer = rest.CodecFactoryForGeneratedClient(scheme, codecs).WithoutConversion()
	c := &Client{Decoder: codecs.UniversalDeserializer()}
	for _, group := range []struct {
		client  *rest.Interface
		version schema.GroupVersion
	}{
		{&c.Core, corev1.SchemeGroupVersion},
		{&c.Discovery, discoveryv1.SchemeGroupVersion},
		{&c.Networking, networkingv1.SchemeGroupVersion},
		{&c.Events, eventsv1.SchemeGroupVersion},
	} {
		if *group.client, err = newGroupClient(shared, group.version); err != nil {
			return nil, fmt.Errorf("client of %s: %w", group.version, err)
		}
	}
	return c, nil
}

func newGroupClient(shared *rest.Config, version schema.GroupVersion) (rest.Interface, error) {
	config := rest.CopyConfig(shared)
	config.GroupVersion, config.APIPath = &version, "/apis"
	if version.Group == "" {
		config.APIPath = "/api"
	}
	return rest.RESTClientFor(config)
}
