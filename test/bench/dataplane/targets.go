package main

import (
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/ptr"

	"github.com/nftproxy/nftproxy/test/apiserver/scale/stage"
)

// Services that there are beside those for TCP, by their numbers.
const (
	udpService      = stage.MaxServices
	affinityService = stage.MaxServices + 1
)

// targets is where clients connect to.
type targets struct{ tcp, udp, affinity netip.AddrPort }

// frontends returns the Services' addresses. That for TCP is one of many, in the middle.
func frontends(services int) targets {
	return targets{tcp: stage.Frontend(services / 2), udp: stage.Frontend(udpService), affinity: stage.Frontend(affinityService)}
}

// endpoints returns an endpoint of each Service.
func endpoints(services, each int) targets {
	first := func(service int) netip.AddrPort {
		return netip.AddrPortFrom(stage.Endpoints(service, each)[0], stage.TargetPort)
	}
	return targets{tcp: first(services / 2), udp: first(udpService)}
}

// newUDPService returns a Service for UDP.
func newUDPService(each int) (*corev1.Service, *discoveryv1.EndpointSlice) {
	service, slice := stage.NewService(udpService), stage.NewSlice(udpService, stage.Endpoints(udpService, each))
	service.Spec.Ports[0].Protocol = corev1.ProtocolUDP
	slice.Ports[0].Protocol = ptr.To(corev1.ProtocolUDP)
	return service, slice
}

// newAffinityService returns a Service for TCP that keeps clients at their endpoint, for the default time of three hours.
func newAffinityService(each int) (*corev1.Service, *discoveryv1.EndpointSlice) {
	service := stage.NewService(affinityService)
	service.Spec.SessionAffinity = corev1.ServiceAffinityClientIP
	return service, stage.NewSlice(affinityService, stage.Endpoints(affinityService, each))
}
