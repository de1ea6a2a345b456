package tabletest

import (
	"errors"
	"fmt"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"

	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/translate"
)

var decoder = sync.OnceValue(func() runtime.Decoder {
	scheme := runtime.NewScheme()
	utilruntime.Must(errors.Join(corev1.AddToScheme(scheme), discoveryv1.AddToScheme(scheme)))
	return serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer()
})

// Objects parses YAML documents with objects of the API, Services by default.
func Objects(text string) (all []runtime.Object, err error) {
	service := corev1.SchemeGroupVersion.WithKind("Service")
	for document := range strings.SplitSeq("\n"+text, "\n---\n") {
		object, _, err := decoder().Decode([]byte(document), &service, nil)
		if err != nil {
			return nil, fmt.Errorf("%w in\n%s", err, document)
		}
		all = append(all, object)
	}
	return all, nil
}

// Apply passes the Services and EndpointSlices of YAML documents.
func Apply(s cluster.Sink, text string) error {
	objects, err := Objects(text)
	for _, object := range objects {
		switch o := object.(type) {
		case *corev1.Service:
			s.SetService(translate.ParseService(o).Service)
		case *discoveryv1.EndpointSlice:
			e := translate.ParseEndpointSlice(o)
			s.SetEndpoints(e.Service, e.Name.Name, e.Endpoints)
		}
	}
	return err
}
