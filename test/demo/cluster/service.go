package cluster

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// Dual is an address of each family. Either can be missing.
type Dual struct {
	IPv4, IPv6 netip.Addr
}

// IsValid tells whether there is an address at all.
func (d Dual) IsValid() bool { return d.IPv4.IsValid() || d.IPv6.IsValid() }

// set puts an address in its place.
func (d *Dual) set(addr netip.Addr) {
	if addr.Is4() {
		d.IPv4 = addr
	} else {
		d.IPv6 = addr
	}
}

// Service is what the tour must know of a Service.
type Service struct {
	Namespace, Name string
	// Type is spec.type.
	Type string
	// ClusterIPs, ExternalIPs and LoadBalancerIPs are its addresses, at most one of each kind and family.
	ClusterIPs, ExternalIPs, LoadBalancerIPs Dual
	// SourceRanges are spec.loadBalancerSourceRanges.
	SourceRanges []string
	// Features are its policies that are not the defaults, in words.
	Features []string
	Ports    []Port
	// Endpoints are the pods that answer for it.
	Endpoints []Endpoint
}

// Port is a port of a Service.
type Port struct {
	Name string
	// Protocol is tcp or udp.
	Protocol string
	Port     uint16
	// NodePort is 0 for none.
	NodePort uint16
	// TargetPort is the port of the pods.
	TargetPort uint16
}

// Endpoint is a pod that answers for a Service.
type Endpoint struct {
	Pod, Node string
	Dual
}

// String returns namespace/name.
func (s *Service) String() string { return s.Namespace + "/" + s.Name }

// Port returns the port of that protocol. The tour's Services have one a protocol at most.
func (s *Service) Port(protocol string) (Port, error) {
	for _, p := range s.Ports {
		if p.Protocol == protocol {
			return p, nil
		}
	}
	return Port{}, fmt.Errorf("service %s has no port for %s", s, strings.ToUpper(protocol))
}

// Pods returns the names of the pods that answer.
func (s *Service) Pods() []string { return Names(s.Endpoints) }

// PodsOn returns the names of the pods of a node that answer.
func (s *Service) PodsOn(node string) []string {
	return Names(slices.DeleteFunc(slices.Clone(s.Endpoints), func(e Endpoint) bool { return e.Node != node }))
}

// Names returns the names of the pods.
func Names(endpoints []Endpoint) []string {
	var names []string
	for _, e := range endpoints {
		names = append(names, e.Pod)
	}
	return names
}
