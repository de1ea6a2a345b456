package random

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/nftproxy/nftproxy/test/lab"
)

// The faults: something in EndpointSlices for which proxies are known to
// differ. Greater numbers are not a fault.
const (
	contradiction = iota
	endpointInServiceCIDR
	portWithoutNumber
	readyButNotServing
)

// Slices returns the EndpointSlices.
func (a *App) Slices() (all []*discoveryv1.EndpointSlice) {
	g, conditions, weights := a.draw(endpoints), a.draw(conditions), a.draw(annotations)
	hints := Pick(g, []string{"", "", "", "", "zone", "zone", "node", "both"})
	fault, leaving := g.IntN(44), conditions.Chance(20)
	if g.Alone {
		fault %= 8
	}
	servicePorts := a.ports()
	for _, f := range g.Families {
		for i := range Pick(g, []int{0, 1, 1, 1, 1, 2, 2, 3}) {
			s := NewSlice(a.Name(), fmt.Sprintf("%s-ipv%d-%d", a.Name(), 4+2*f, i), f)
			s.Annotations = weights.weight()
			g.fill(s, servicePorts, f, hints)
			for i := range s.Endpoints {
				s.Endpoints[i].Conditions = conditions.conditions(leaving)
			}
			all = append(all, s)
		}
	}
	if fault != contradiction {
		repeated(all, func(first, e *discoveryv1.Endpoint) { *e = *first.DeepCopy() })
	}
	if len(all) > 0 {
		a.spoil(Pick(g, all), fault)
	}
	if g.Chance(4) { // proxies ignore it
		s := NewSlice(a.Name(), a.Name()+"-fqdn", 0)
		s.AddressType = discoveryv1.AddressTypeFQDN
		s.Endpoints = []discoveryv1.Endpoint{{Addresses: []string{"a.example.com"}}}
		all = append(all, s)
	}
	return all
}

// spoil adds a fault to a slice.
func (a *App) spoil(s *discoveryv1.EndpointSlice, fault int) {
	f := map[discoveryv1.AddressType]int{discoveryv1.AddressTypeIPv6: 1}[s.AddressType]
	switch {
	case fault == portWithoutNumber && len(s.Ports) > 0:
		s.Ports[0].Port = nil
	case len(s.Endpoints) == 0:
	case fault == endpointInServiceCIDR:
		s.Endpoints[0].Addresses = []string{lab.AddrIn(lab.ServiceRanges()[f], 0x8000+a.Slot).String()}
	case fault == readyButNotServing:
		s.Endpoints[0].Conditions = discoveryv1.EndpointConditions{Ready: ptr.To(true), Serving: ptr.To(false)}
	}
}

// repeated calls f with each endpoint that has the same address as an earlier
// one, and the first of these.
func repeated(all []*discoveryv1.EndpointSlice, f func(first, e *discoveryv1.Endpoint)) {
	seen := map[string]*discoveryv1.Endpoint{}
	for _, s := range all {
		for i := range s.Endpoints {
			e := &s.Endpoints[i]
			if first := seen[e.Addresses[0]]; first != nil {
				f(first, e)
			} else {
				seen[e.Addresses[0]] = e
			}
		}
	}
}

// Contradictory reports whether endpoints with the same address differ.
func (a *App) Contradictory() (differ bool) {
	repeated(a.Slices(), func(first, e *discoveryv1.Endpoint) {
		differ = differ || !equality.Semantic.DeepEqual(first, e)
	})
	return differ
}

// NewSlice returns an EndpointSlice of a Service for a family, 0 for IPv4.
func NewSlice(service, name string, f int) *discoveryv1.EndpointSlice {
	return &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: Namespace, Labels: map[string]string{discoveryv1.LabelServiceName: service},
		},
		AddressType: []discoveryv1.AddressType{discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6}[f],
	}
}

// AddEndpoint adds an endpoint to an EndpointSlice and returns it.
func AddEndpoint(s *discoveryv1.EndpointSlice, addr netip.Addr) *discoveryv1.Endpoint {
	s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{addr.String()}})
	return &s.Endpoints[len(s.Endpoints)-1]
}

// fill adds ports and endpoints to a slice.
func (g *Generator) fill(s *discoveryv1.EndpointSlice, servicePorts []corev1.ServicePort, f int, hints string) {
	if g.Chance(3) {
		s.Labels[corev1.IsHeadlessService] = ""
	}
	for _, p := range servicePorts {
		number, protocol := Pick(g, []int32{FirstTarget, SecondTarget}), p.Protocol
		if g.Chance(1) {
			protocol = corev1.ProtocolTCP
		}
		if g.Chance(96) {
			s.Ports = append(s.Ports, discoveryv1.EndpointPort{Name: &p.Name, Protocol: &protocol, Port: &number})
		}
	}
	names := slices.Sorted(maps.Keys(g.Endpoints))
	for range Pick(g, []int{0, 1, 1, 2, 2, 3, 4}) {
		name := Pick(g, names)
		e := AddEndpoint(s, g.Endpoints[name][f])
		if g.Chance(3) { // only the first one counts
			e.Addresses = append(e.Addresses, g.Endpoints[Pick(g, names)][f].String())
		}
		switch choice := g.IntN(100); { // the node is usually the right one
		case choice < 84:
			e.NodeName = ptr.To(lab.NodeOf(name))
		case choice < 92:
			e.NodeName = ptr.To(Pick(g, []string{"node1", "node2", "node3"}))
		}
		if hints != "" && !g.Chance(6) {
			e.Hints = g.hints(hints)
		}
	}
}

// conditions returns the conditions of an endpoint. None is ready if all are
// leaving.
func (g *Generator) conditions(leaving bool) (c discoveryv1.EndpointConditions) {
	any := []*bool{nil, ptr.To(true), ptr.To(false)}
	if g.Chance(40) {
		c.Ready = ptr.To(true)
	}
	if g.Chance(35) {
		c.Ready = Pick(g, []*bool{nil, ptr.To(true), ptr.To(false), ptr.To(false)})
		c.Serving, c.Terminating = Pick(g, any), Pick(g, any)
		if ptr.Deref(c.Ready, true) {
			c.Serving = ptr.To(true)
		}
	}
	if leaving {
		c.Ready, c.Terminating = ptr.To(false), ptr.To(true)
	}
	return c
}

// hints returns hints for zones, nodes or both.
func (g *Generator) hints(of string) *discoveryv1.EndpointHints {
	h := &discoveryv1.EndpointHints{}
	if of != "node" {
		for _, zone := range Pick(g, [][]string{{"east"}, {"west"}, {"north"}, {"east", "west"}}) {
			h.ForZones = append(h.ForZones, discoveryv1.ForZone{Name: zone})
		}
	}
	if of != "zone" {
		for _, node := range Pick(g, [][]string{{"node1"}, {"node2"}, {"node3"}, {"node1", "node2"}}) {
			h.ForNodes = append(h.ForNodes, discoveryv1.ForNode{Name: node})
		}
	}
	return h
}
