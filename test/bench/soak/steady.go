package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/nftproxy/nftproxy/test/apiserver/random"
	"github.com/nftproxy/nftproxy/test/lab"
)

// steady is a Service to which each connection must succeed. Its endpoints
// never change, or are replaced gracefully.
type steady struct {
	number   int
	name     string
	ready    []string // endpoints
	leaving  string   // endpoint that is serving and terminating; empty for none
	graceful bool
	change   func(*corev1.Service) // may be nil
}

func steadyServices() []*steady {
	all := []*steady{
		{name: "steady-cluster", ready: []string{"a1", "a2", "b1"}, change: func(s *corev1.Service) {
			udp := s.Spec.Ports[0]
			udp.Name, udp.Protocol = "udp", corev1.ProtocolUDP
			s.Spec.Ports = append(s.Spec.Ports, udp)
		}},
		{name: "steady-local", ready: []string{"a1", "a2", "b1", "b2"}, change: func(s *corev1.Service) {
			s.Spec.Type, s.Spec.ExternalTrafficPolicy = corev1.ServiceTypeLoadBalancer, corev1.ServiceExternalTrafficPolicyLocal
			s.Spec.HealthCheckNodePort = 32690 // the API server would choose any, also that of another Service
			s.Spec.LoadBalancerSourceRanges = []string{
				"172.30.0.0/24", "fd00:30::/64", lab.PodRanges()[0].String(), lab.PodRanges()[1].String(),
			}
			for _, prefix := range lab.ExternalRanges() {
				s.Status.LoadBalancer.Ingress = append(s.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{
					IP: lab.AddrIn(prefix, 200).String(), IPMode: ptr.To(corev1.LoadBalancerIPModeVIP),
				})
			}
		}},
		{name: "steady-sticky", ready: []string{"a1", "a2", "b1"}, change: func(s *corev1.Service) {
			s.Spec.SessionAffinity = corev1.ServiceAffinityClientIP
		}},
	}
	for i, endpoints := range [][]string{{"a1"}, {"b1", "a2"}, {"a1", "a2", "b2"}} {
		all = append(all, &steady{name: fmt.Sprintf("graceful-%d", i), ready: endpoints, graceful: true})
	}
	for i, s := range all {
		s.number = i
	}
	return all
}

// createSteady creates the steady Services.
func (w *world) createSteady(ctx context.Context) error {
	w.steady = steadyServices()
	for _, s := range w.steady {
		if err := w.putEndpoints(ctx, s); err != nil {
			return err
		}
		if _, err := w.api.PutService(ctx, s.object()); err != nil {
			return err
		}
	}
	return nil
}

// clusterIPs returns the ClusterIPs, which the generator does not use.
func (s *steady) clusterIPs() (addrs []string) {
	for _, prefix := range lab.ServiceRanges() {
		addrs = append(addrs, lab.AddrIn(prefix, 0xfe00+s.number).String())
	}
	return addrs
}

func (s *steady) object() *corev1.Service {
	o := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: s.name, Namespace: random.Namespace}}
	o.Spec.Type = corev1.ServiceTypeNodePort
	o.Spec.IPFamilyPolicy = ptr.To(corev1.IPFamilyPolicyRequireDualStack)
	o.Spec.IPFamilies = []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}
	o.Spec.ClusterIPs = s.clusterIPs()
	o.Spec.ClusterIP = o.Spec.ClusterIPs[0]
	o.Spec.Ports = []corev1.ServicePort{{
		Name: "tcp", Protocol: corev1.ProtocolTCP, Port: 80, NodePort: int32(32700 + s.number),
	}}
	if s.change != nil {
		s.change(o)
	}
	return o
}

// putEndpoints writes the EndpointSlices of a steady Service.
func (w *world) putEndpoints(ctx context.Context, s *steady) error {
	types := []discoveryv1.AddressType{discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6}
	for f, addressType := range types {
		slice := &discoveryv1.EndpointSlice{
			ObjectMeta: metav1.ObjectMeta{
				Name: fmt.Sprintf("%s-%d", s.name, f), Namespace: random.Namespace,
				Labels: map[string]string{discoveryv1.LabelServiceName: s.name},
			},
			AddressType: addressType,
		}
		for _, protocol := range []corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP} {
			slice.Ports = append(slice.Ports, discoveryv1.EndpointPort{
				Name: ptr.To(strings.ToLower(string(protocol))), Protocol: ptr.To(protocol),
				Port: ptr.To[int32](random.FirstTarget),
			})
		}
		add := func(name string, leaving bool) {
			node := map[byte]string{'a': "node1", 'b': "node2"}[name[0]]
			slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{
				Addresses: []string{w.pods[name][f].String()}, NodeName: ptr.To(node),
				Conditions: discoveryv1.EndpointConditions{
					Ready: ptr.To(!leaving), Serving: ptr.To(true), Terminating: ptr.To(leaving),
				},
			})
		}
		for _, name := range s.ready {
			add(name, false)
		}
		if s.leaving != "" {
			add(s.leaving, true)
		}
		if err := w.api.PutSlice(ctx, slice); err != nil {
			return err
		}
	}
	return nil
}

// advance makes the next step of a graceful replacement: it adds an endpoint,
// marks another one as serving and terminating, and removes it.
func (s *steady) advance(r *rand.Rand) {
	switch {
	case s.leaving != "":
		s.leaving = ""
	case len(s.ready) > s.number%3+1:
		s.leaving, s.ready = s.ready[0], s.ready[1:]
	default:
		free := []string{"a1", "a2", "b1", "b2"}
		for _, name := range s.ready {
			free = without(free, name)
		}
		s.ready = append(s.ready, free[r.IntN(len(free))])
	}
}

func without(names []string, name string) (others []string) {
	for _, other := range names {
		if other != name {
			others = append(others, other)
		}
	}
	return others
}
