package translate

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"time"
	"unique"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/ptr"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
)

// SliceName identifies an EndpointSlice.
type SliceName struct{ Namespace, Name string }

// EndpointSlice is the result of parsing an EndpointSlice of the API. It shares
// only strings with the API object.
type EndpointSlice struct {
	Name SliceName
	UID  string
	// Service is the Service that the slice belongs to. It is zero if the slice
	// must not be used.
	Service cluster.ServiceName
	// Endpoints are in ascending order of their addresses, without duplicates.
	Endpoints []*cluster.Endpoint
	// Family is the family of the addresses. It has no meaning for a slice that
	// must not be used.
	Family nft.Family
	// Triggered is the time of the change of a pod or Service that led to this
	// version of the slice. It is zero if the slice does not contain it.
	Triggered time.Time
	// Problems are the fields that are invalid and were ignored.
	Problems []error
}

// ParseEndpointSlice parses an EndpointSlice of the API. It ignores the
// endpoints of a slice that must not be used: one without a Service, of a
// headless Service, or of FQDNs.
//
// The label service.kubernetes.io/service-proxy-name is ignored, as in
// kube-proxy: the label of the Service decides which proxy serves it.
func ParseEndpointSlice(slice *discoveryv1.EndpointSlice) *EndpointSlice {
	s := &EndpointSlice{Name: SliceName{slice.Namespace, slice.Name}, UID: string(slice.UID), Family: nft.IPv4}
	if slice.AddressType == discoveryv1.AddressTypeIPv6 {
		s.Family = nft.IPv6
	}
	if at, err := time.Parse(time.RFC3339Nano, slice.Annotations[corev1.EndpointsLastChangeTriggerTime]); err == nil {
		s.Triggered = at
	}
	service := slice.Labels[discoveryv1.LabelServiceName]
	_, headless := slice.Labels[corev1.IsHeadlessService]
	fqdn := slice.AddressType != discoveryv1.AddressTypeIPv4 && slice.AddressType != discoveryv1.AddressTypeIPv6
	if service == "" || headless || fqdn {
		return s
	}
	s.Service = cluster.ServiceName{Namespace: slice.Namespace, Name: service}
	s.Endpoints, s.Problems = parseEndpoints(slice)
	return s
}

func parseEndpoints(slice *discoveryv1.EndpointSlice) (endpoints []*cluster.Endpoint, problems []error) {
	p := parser{}
	ports := p.endpointPorts(slice.Ports)
	weight := p.weight(slice.Annotations)
	var all []cluster.Endpoint
	for i := range slice.Endpoints {
		e := &slice.Endpoints[i]
		addr, ok := p.endpointAddr(i, e, slice.AddressType)
		if !ok {
			continue
		}
		if all == nil {
			all = make([]cluster.Endpoint, 0, len(slice.Endpoints))
		}
		endpoint := endpointOf(e, cluster.EndpointKey{Source: slice.Name, Addr: addr}, ports)
		endpoint.Weight = weight
		all = append(all, endpoint)
	}
	slices.SortStableFunc(all, func(a, b cluster.Endpoint) int {
		return cmp.Or(a.Addr.Compare(b.Addr), b.Rank()-a.Rank())
	})
	all = slices.CompactFunc(all, func(a, b cluster.Endpoint) bool { return a.Addr == b.Addr })
	endpoints = make([]*cluster.Endpoint, len(all))
	for i := range all {
		endpoints[i] = &all[i]
	}
	return endpoints, p.problems
}

// endpointAddr returns the first address of endpoint i and reports whether it
// is valid. The API gives the other addresses of an endpoint no meaning
// (k8s.io/api/discovery/v1.Endpoint), so they are neither used nor checked.
func (p *parser) endpointAddr(i int, e *discoveryv1.Endpoint, typ discoveryv1.AddressType) (addr netip.Addr, ok bool) {
	if len(e.Addresses) == 0 {
		return addr, false
	}
	first := e.Addresses[0]
	addr, ok = ParseAddr(first)
	if !ok || addr.Is4() != (typ == discoveryv1.AddressTypeIPv4) || addr.IsUnspecified() || addr.IsMulticast() {
		err := fmt.Errorf("%q is not the %s address of an endpoint", first, typ)
		p.problem(fmt.Sprintf("endpoints[%d].addresses[0]", i), err)
		return addr, false
	}
	return addr, true
}

// endpointOf converts one endpoint. Conditions that are nil have the defaults
// of the API: ready, serving, and not terminating
// (k8s.io/api/discovery/v1.EndpointConditions).
func endpointOf(e *discoveryv1.Endpoint, key cluster.EndpointKey, ports []cluster.EndpointPort) cluster.Endpoint {
	pod := ""
	if e.TargetRef != nil && e.TargetRef.Kind == "Pod" {
		pod = e.TargetRef.Name
	}
	return cluster.Endpoint{
		EndpointKey: key,
		Ports:       ports,
		Pod:         pod,
		Node:        intern(ptr.Deref(e.NodeName, "")),
		Hints:       hintsOf(e.Hints),
		Ready:       ptr.Deref(e.Conditions.Ready, true),
		Serving:     ptr.Deref(e.Conditions.Serving, true),
		Terminating: ptr.Deref(e.Conditions.Terminating, false),
	}
}

// intern returns a copy of s that all equal strings share.
func intern(s string) string { return unique.Make(s).Value() }

func hintsOf(h *discoveryv1.EndpointHints) *cluster.Hints {
	if h == nil || len(h.ForZones)+len(h.ForNodes) == 0 {
		return nil
	}
	hints := new(cluster.Hints)
	for _, z := range h.ForZones {
		hints.Zones = append(hints.Zones, intern(z.Name))
	}
	for _, n := range h.ForNodes {
		hints.Nodes = append(hints.Nodes, intern(n.Name))
	}
	return hints
}

// endpointPorts converts the ports of a slice. In the API a port without a
// number stands for all ports; in an EndpointPort, the number 0 does. The API
// does not define an order; package cluster does.
func (p *parser) endpointPorts(ports []discoveryv1.EndpointPort) []cluster.EndpointPort {
	out := make([]cluster.EndpointPort, 0, len(ports))
	for i, port := range ports {
		proto, err := protocolOf(ptr.Deref(port.Protocol, ""))
		if n := ptr.Deref(port.Port, 0); err == nil && (n < 0 || n > 65535 || (n == 0 && port.Port != nil)) {
			err = fmt.Errorf("port %d is out of range", n)
		}
		if err != nil {
			p.problem(fmt.Sprintf("ports[%d]", i), err)
			continue
		}
		name := intern(ptr.Deref(port.Name, ""))
		out = append(out, cluster.EndpointPort{Name: name, Protocol: proto, Port: uint16(ptr.Deref(port.Port, 0))})
	}
	slices.SortStableFunc(out, cluster.EndpointPort.Compare)
	return out
}
