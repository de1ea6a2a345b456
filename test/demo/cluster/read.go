package cluster

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	yamlstream "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

// objects are the manifests' objects that the tour looks at.
type objects struct {
	services []corev1.Service
	slices   []discoveryv1.EndpointSlice
}

// Read returns the Services of all manifests (*.yaml) in the folder, by namespace and name, with their endpoints.
func Read(folder fs.FS) ([]*Service, error) {
	names, err := fs.Glob(folder, "*.yaml")
	if err != nil {
		return nil, err
	}
	var all objects
	for _, name := range names {
		data, err := fs.ReadFile(folder, name)
		if err != nil {
			return nil, err
		}
		if err := all.add(data); err != nil {
			return nil, fmt.Errorf("manifest %s: %w", path.Base(name), err)
		}
	}
	return all.join()
}

// add takes in the documents of one file.
func (o *objects) add(data []byte) error {
	documents := yamlstream.NewYAMLReader(bufio.NewReader(bytes.NewReader(data)))
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		var head metav1.TypeMeta
		if err := yaml.Unmarshal(document, &head); err != nil {
			return err
		}
		switch head.Kind {
		case "Service":
			err = decode(document, &o.services)
		case "EndpointSlice":
			err = decode(document, &o.slices)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", head.Kind, err)
		}
	}
}

func decode[T any](document []byte, into *[]T) error {
	var value T
	if err := yaml.UnmarshalStrict(document, &value); err != nil {
		return err
	}
	*into = append(*into, value)
	return nil
}

// join puts the objects of each Service together.
func (o *objects) join() ([]*Service, error) {
	var result []*Service
	for i := range o.services {
		service, err := newService(&o.services[i])
		if err != nil {
			return nil, err
		}
		for j := range o.slices {
			if err := service.addSlice(&o.slices[j]); err != nil {
				return nil, err
			}
		}
		result = append(result, service)
	}
	slices.SortFunc(result, func(a, b *Service) int { return strings.Compare(a.String(), b.String()) })
	return result, nil
}

func newService(from *corev1.Service) (*Service, error) {
	s := &Service{Namespace: from.Namespace, Name: from.Name, Type: string(from.Spec.Type)}
	var ingress []string
	for _, i := range from.Status.LoadBalancer.Ingress {
		ingress = append(ingress, i.IP)
	}
	for _, kind := range []struct {
		addrs []string
		into  *Dual
	}{{from.Spec.ClusterIPs, &s.ClusterIPs}, {from.Spec.ExternalIPs, &s.ExternalIPs}, {ingress, &s.LoadBalancerIPs}} {
		for _, text := range kind.addrs {
			addr, err := netip.ParseAddr(text)
			if err != nil {
				return nil, fmt.Errorf("service %s: %w", s, err)
			}
			kind.into.set(addr)
		}
	}
	for _, p := range from.Spec.Ports {
		s.Ports = append(s.Ports, Port{
			Name: p.Name, Protocol: strings.ToLower(string(p.Protocol)), Port: uint16(p.Port), NodePort: uint16(p.NodePort),
		})
	}
	s.SourceRanges = from.Spec.LoadBalancerSourceRanges
	s.Features = features(&from.Spec)
	return s, nil
}

// features names the policies that are not the defaults.
func features(spec *corev1.ServiceSpec) []string {
	var words []string
	if spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal {
		words = append(words, "externalTrafficPolicy: Local")
	}
	if len(spec.LoadBalancerSourceRanges) > 0 {
		words = append(words, "loadBalancerSourceRanges")
	}
	if spec.SessionAffinity == corev1.ServiceAffinityClientIP {
		words = append(words, "sessionAffinity: ClientIP")
	}
	return words
}

// addSlice takes in the endpoints of an EndpointSlice, if it is the Service's.
func (s *Service) addSlice(slice *discoveryv1.EndpointSlice) error {
	if slice.Namespace != s.Namespace || slice.Labels[discoveryv1.LabelServiceName] != s.Name {
		return nil
	}
	for _, p := range slice.Ports {
		for i := range s.Ports {
			if p.Name != nil && p.Port != nil && s.Ports[i].Name == *p.Name {
				s.Ports[i].TargetPort = uint16(*p.Port)
			}
		}
	}
	for _, e := range slice.Endpoints {
		if e.TargetRef == nil || e.NodeName == nil || len(e.Addresses) != 1 {
			return fmt.Errorf("endpointslice %s/%s: an endpoint without targetRef, nodeName or one address", slice.Namespace, slice.Name)
		}
		addr, err := netip.ParseAddr(e.Addresses[0])
		if err != nil {
			return fmt.Errorf("endpointslice %s/%s: %w", slice.Namespace, slice.Name, err)
		}
		s.endpoint(e.TargetRef.Name, *e.NodeName).set(addr)
	}
	return nil
}

// endpoint returns the endpoint of that pod, a new one if there is none.
func (s *Service) endpoint(pod, node string) *Endpoint {
	for i := range s.Endpoints {
		if s.Endpoints[i].Pod == pod {
			return &s.Endpoints[i]
		}
	}
	s.Endpoints = append(s.Endpoints, Endpoint{Pod: pod, Node: node})
	return &s.Endpoints[len(s.Endpoints)-1]
}
