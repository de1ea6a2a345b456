package cluster

import (
	"bytes"
	"fmt"
	"net/netip"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"
)

// EndpointsFile is the name of the manifest that holds the Service's EndpointSlices.
func (s *Service) EndpointsFile() string { return s.Namespace + "-" + s.Name + "-endpoints.yaml" }

// EndpointsManifest returns the manifest of the Service's EndpointSlices, one a family, with these endpoints.
func (s *Service) EndpointsManifest(endpoints []Endpoint) ([]byte, error) {
	documents := [][]byte{}
	for _, family := range []discoveryv1.AddressType{discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6} {
		document, err := yaml.Marshal(s.slice(family, endpoints))
		if err != nil {
			return nil, fmt.Errorf("endpoints of service %s: %w", s, err)
		}
		documents = append(documents, document)
	}
	head := fmt.Sprintf("# Who answers for %s.\n", s)
	return append([]byte(head), bytes.Join(documents, []byte("---\n"))...), nil
}

// slice returns the EndpointSlice of one family.
func (s *Service) slice(family discoveryv1.AddressType, endpoints []Endpoint) *discoveryv1.EndpointSlice {
	slice := &discoveryv1.EndpointSlice{
		TypeMeta: metav1.TypeMeta{APIVersion: discoveryv1.SchemeGroupVersion.String(), Kind: "EndpointSlice"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: s.Namespace,
			Name:      s.Name + "-" + strings.ToLower(string(family)),
			Labels:    map[string]string{discoveryv1.LabelServiceName: s.Name},
		},
		AddressType: family,
		Endpoints:   []discoveryv1.Endpoint{},
	}
	for _, p := range s.Ports {
		slice.Ports = append(slice.Ports, discoveryv1.EndpointPort{
			Name:     ptr.To(p.Name),
			Protocol: ptr.To(corev1.Protocol(strings.ToUpper(p.Protocol))),
			Port:     ptr.To(int32(p.TargetPort)),
		})
	}
	for _, e := range endpoints {
		if addr := e.of(family); addr.IsValid() {
			slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{
				Addresses: []string{addr.String()},
				NodeName:  ptr.To(e.Node),
				TargetRef: &corev1.ObjectReference{Kind: "Pod", Namespace: s.Namespace, Name: e.Pod},
			})
		}
	}
	return slice
}

func (d Dual) of(family discoveryv1.AddressType) netip.Addr {
	if family == discoveryv1.AddressTypeIPv4 {
		return d.IPv4
	}
	return d.IPv6
}
