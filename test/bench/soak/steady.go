package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
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
			s.Spec.Type = corev1.ServiceTypeLoadBalancer
			s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
			s.Spec.HealthCheckNodePort = 32690 // the API server would choose any, also one of another Service
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
	var errs []error
	for _, s := range w.steady {
		errs = append(errs, w.putEndpoints(ctx, s))
		_, err := w.api.PutService(ctx, s.object())
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// clusterIPs returns the ClusterIPs, which the generator does not use.
func (s *steady) clusterIPs() (addrs []string) {
	for _, prefix := range lab.ServiceRanges() {
		addrs = append(addrs, lab.AddrIn(prefix, 0xfe00+s.number).String())
	}
	return addrs
}

func (s *steady) object() *corev1.Service {
	o := random.NewService(s.name, s.clusterIPs())
	o.Spec.Type = corev1.ServiceTypeNodePort
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
	for f := range families() {
		slice := random.NewSlice(s.name, fmt.Sprintf("%s-%d", s.name, f), f)
		for _, protocol := range []corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP} {
			slice.Ports = append(slice.Ports, discoveryv1.EndpointPort{
				Name: ptr.To(strings.ToLower(string(protocol))), Protocol: ptr.To(protocol),
				Port: ptr.To[int32](random.FirstTarget),
			})
		}
		for _, name := range append(slices.Clone(s.ready), s.leaving) {
			if name == "" {
				continue
			}
			e, leaving := random.AddEndpoint(slice, w.pods[name][f]), name == s.leaving
			e.NodeName = ptr.To(random.NodeOf(name))
			e.Conditions = discoveryv1.EndpointConditions{
				Ready: ptr.To(!leaving), Serving: ptr.To(true), Terminating: ptr.To(leaving),
			}
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
		free := slices.DeleteFunc([]string{"a1", "a2", "b1", "b2"}, func(name string) bool {
			return slices.Contains(s.ready, name)
		})
		s.ready = append(s.ready, free[r.IntN(len(free))])
	}
}
