package proxier

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"unique"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/ptr"
)

// endpointsOf translates an EndpointSlice of the API. It returns the Service
// that the slice belongs to, the endpoints of the slice in ascending order of
// their addresses, and a problem for each value that is invalid and was left out.
// The service is zero for a slice that must not be used: one without a Service,
// of a headless Service, or of FQDNs.
//
// The label service.kubernetes.io/service-proxy-name is not looked at, as in
// kube-proxy: the Service decides which proxy serves it.
func endpointsOf(slice *discoveryv1.EndpointSlice) (service ServiceName, endpoints []*Endpoint, problems []error) {
	name := slice.Labels[discoveryv1.LabelServiceName]
	if _, headless := slice.Labels[corev1.IsHeadlessService]; name == "" || headless {
		return ServiceName{}, nil, nil
	}
	if slice.AddressType != discoveryv1.AddressTypeIPv4 && slice.AddressType != discoveryv1.AddressTypeIPv6 {
		return ServiceName{}, nil, nil
	}
	p := parser{}
	ports := p.endpointPorts(slice.Ports)
	var all []Endpoint
	for i := range slice.Endpoints {
		e := &slice.Endpoints[i]
		addr, ok := p.endpointAddr(i, e, slice.AddressType)
		if !ok {
			continue
		}
		if all == nil {
			all = make([]Endpoint, 0, len(slice.Endpoints))
		}
		all = append(all, endpointOf(e, EndpointKey{Source: slice.Name, Addr: addr}, ports))
	}
	slices.SortStableFunc(all, func(a, b Endpoint) int {
		return cmp.Or(a.Addr.Compare(b.Addr), fitness(&b)-fitness(&a))
	})
	all = slices.CompactFunc(all, func(a, b Endpoint) bool { return a.Addr == b.Addr })
	for i := range all {
		endpoints = append(endpoints, &all[i])
	}
	return ServiceName{slice.Namespace, name}, endpoints, p.problems
}

// endpointAddr returns the first address of endpoint i and reports whether it is
// valid. The API gives the other addresses of an endpoint no meaning
// (k8s.io/api/discovery/v1.Endpoint), so they are neither used nor checked.
func (p *parser) endpointAddr(i int, e *discoveryv1.Endpoint, typ discoveryv1.AddressType) (addr netip.Addr, ok bool) {
	if len(e.Addresses) == 0 {
		return addr, false
	}
	first := e.Addresses[0]
	addr, ok = parseAddr(first)
	if !ok || addr.Is4() != (typ == discoveryv1.AddressTypeIPv4) || addr.IsUnspecified() || addr.IsMulticast() {
		err := fmt.Errorf("%q is not the %s address of an endpoint", first, typ)
		p.problem(fmt.Sprintf("endpoints[%d].addresses[0]", i), err)
		return addr, false
	}
	return addr, true
}

// endpointOf translates one endpoint. Conditions that are nil have the defaults
// of the API: ready, serving, and not terminating
// (k8s.io/api/discovery/v1.EndpointConditions).
func endpointOf(e *discoveryv1.Endpoint, key EndpointKey, ports []EndpointPort) Endpoint {
	return Endpoint{
		EndpointKey: key,
		Ports:       ports,
		Node:        intern(value(e.NodeName)),
		Hints:       hintsOf(e.Hints),
		Ready:       ptr.Deref(e.Conditions.Ready, true),
		Serving:     ptr.Deref(e.Conditions.Serving, true),
		Terminating: ptr.Deref(e.Conditions.Terminating, false),
	}
}

// value returns what p points to, the zero value if that is nothing.
func value[T any](p *T) T {
	if p == nil {
		var zero T
		return zero
	}
	return *p
}

// intern returns a string equal to s that all equal strings share.
func intern(s string) string { return unique.Make(s).Value() }

func hintsOf(h *discoveryv1.EndpointHints) *Hints {
	if h == nil || len(h.ForZones)+len(h.ForNodes) == 0 {
		return nil
	}
	hints := new(Hints)
	for _, z := range h.ForZones {
		hints.Zones = append(hints.Zones, intern(z.Name))
	}
	for _, n := range h.ForNodes {
		hints.Nodes = append(hints.Nodes, intern(n.Name))
	}
	return hints
}

// endpointPorts translates the ports of a slice. Port 0 stands for all ports, which the API says by leaving the number out.
func (p *parser) endpointPorts(ports []discoveryv1.EndpointPort) []EndpointPort {
	out := make([]EndpointPort, 0, len(ports))
	for i, port := range ports {
		proto, err := protocolOf(value[corev1.Protocol](port.Protocol))
		if n := value(port.Port); err == nil && (n < 0 || n > 65535 || (n == 0 && port.Port != nil)) {
			err = fmt.Errorf("port %d is out of range", n)
		}
		if err != nil {
			p.problem(fmt.Sprintf("ports[%d]", i), err)
			continue
		}
		out = append(out, EndpointPort{Name: intern(value(port.Name)), Protocol: proto, Port: uint16(value(port.Port))})
	}
	return out
}
