package tabletest

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"sigs.k8s.io/yaml"

	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/translate"
)

// Apply passes the Services and EndpointSlices of YAML documents.
func Apply(s cluster.Sink, text string) error {
	for document := range strings.SplitSeq(text, "---\n") {
		var service corev1.Service
		var slice discoveryv1.EndpointSlice
		object := any(&service)
		if strings.Contains(document, "kind: EndpointSlice") {
			object = &slice
		}
		if err := yaml.UnmarshalStrict([]byte(document), object); err != nil {
			return fmt.Errorf("%w in\n%s", err, document)
		}
		if object == any(&slice) {
			e := translate.ParseEndpointSlice(&slice)
			s.SetEndpoints(e.Service, e.Name.Name, e.Endpoints)
		} else {
			s.SetService(translate.ParseService(&service).Service)
		}
	}
	return nil
}
