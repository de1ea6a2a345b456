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

// drawSlices chooses EndpointSlices for all families.
func (g *Generator) drawSlices(a *App) {
	a.Slices = nil
	hints := Pick(g, []string{"", "", "", "", "zone", "zone", "node", "both"})
	for _, f := range g.Families {
		for i := range Pick(g, []int{0, 1, 1, 1, 1, 2, 2, 3}) {
			a.Slices = append(a.Slices, g.slice(a, f, i, hints))
		}
	}
	fault := g.IntN(44)
	if g.Alone {
		fault = g.IntN(8)
	}
	if fault != contradiction {
		a.unify()
	}
	g.spoil(a, fault)
	if g.Chance(4) {
		a.Slices = append(a.Slices, a.fqdnSlice())
	}
}

// The faults: something in EndpointSlices for which the proxies are known to
// differ. Greater numbers are not a fault.
const (
	contradiction = iota
	endpointInServiceCIDR
	portWithoutNumber
	readyButNotServing
)

// spoil adds a fault to one of the slices.
func (g *Generator) spoil(a *App, fault int) {
	if len(a.Slices) == 0 {
		return
	}
	s := Pick(g, a.Slices)
	f := 0
	if s.AddressType == discoveryv1.AddressTypeIPv6 {
		f = 1
	}
	switch {
	case fault == endpointInServiceCIDR && len(s.Endpoints) > 0:
		s.Endpoints[0].Addresses = []string{lab.AddrIn(lab.ServiceRanges()[f], 0x8000+a.Slot).String()}
	case fault == portWithoutNumber && len(s.Ports) > 0:
		s.Ports[0].Port = nil
	case fault == readyButNotServing && len(s.Endpoints) > 0:
		s.Endpoints[0].Conditions = discoveryv1.EndpointConditions{Ready: ptr.To(true), Serving: ptr.To(false)}
	}
}

// repeated calls f with each endpoint that has the same address as an earlier
// one, and the first of these.
func (a *App) repeated(f func(first, e *discoveryv1.Endpoint)) {
	seen := map[string]*discoveryv1.Endpoint{}
	for _, s := range a.Slices {
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

// unify makes endpoints with the same address equal.
func (a *App) unify() { a.repeated(func(first, e *discoveryv1.Endpoint) { *e = *first.DeepCopy() }) }

// Contradictory reports whether endpoints with the same address differ.
func (a *App) Contradictory() (differ bool) {
	a.repeated(func(first, e *discoveryv1.Endpoint) { differ = differ || !equality.Semantic.DeepEqual(first, e) })
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

func (g *Generator) slice(a *App, f, i int, hints string) *discoveryv1.EndpointSlice {
	s := NewSlice(a.Name(), fmt.Sprintf("%s-ipv%d-%d", a.Name(), 4+2*f, i), f)
	g.drawWeight(s)
	if g.Chance(3) {
		s.Labels[corev1.IsHeadlessService] = ""
	}
	for _, p := range a.spec.Ports {
		if g.Chance(96) {
			s.Ports = append(s.Ports, g.endpointPort(p))
		}
	}
	names := slices.Sorted(maps.Keys(g.Endpoints))
	for range Pick(g, []int{0, 1, 1, 2, 2, 3, 4}) {
		name := Pick(g, names)
		e := AddEndpoint(s, g.Endpoints[name][f])
		if g.Chance(3) { // only the first one counts
			e.Addresses = append(e.Addresses, g.Endpoints[Pick(g, names)][f].String())
		}
		g.place(e, name)
		g.setConditions(e)
		g.hint(e, hints)
	}
	return s
}

// endpointPort returns the port of endpoints for a port of the Service.
func (g *Generator) endpointPort(p corev1.ServicePort) discoveryv1.EndpointPort {
	ep := discoveryv1.EndpointPort{
		Name: ptr.To(p.Name), Protocol: ptr.To(p.Protocol), Port: ptr.To(Pick(g, []int32{FirstTarget, SecondTarget})),
	}
	if g.Chance(1) {
		ep.Protocol = ptr.To(corev1.ProtocolTCP)
	}
	return ep
}

// place sets the node of an endpoint, usually the right one.
func (g *Generator) place(e *discoveryv1.Endpoint, name string) {
	switch choice := g.IntN(100); {
	case choice < 84:
		e.NodeName = ptr.To(lab.NodeOf(name))
	case choice < 92:
		e.NodeName = ptr.To(Pick(g, []string{"node1", "node2", "node3"}))
	}
}

// drawConditions changes conditions of endpoints. Sometimes none is ready.
func (g *Generator) drawConditions(a *App) {
	contradictory, leaving := a.Contradictory(), g.Chance(25)
	for _, s := range a.Slices {
		for i := range s.Endpoints {
			if g.Chance(60) || leaving {
				g.setConditions(&s.Endpoints[i])
			}
			if leaving {
				s.Endpoints[i].Conditions.Ready, s.Endpoints[i].Conditions.Terminating = ptr.To(false), ptr.To(true)
			}
		}
	}
	if !contradictory {
		a.unify()
	}
}

func (g *Generator) setConditions(e *discoveryv1.Endpoint) {
	e.Conditions = discoveryv1.EndpointConditions{}
	if g.Chance(40) {
		e.Conditions.Ready = ptr.To(true)
	}
	if g.Chance(35) {
		any := []*bool{nil, ptr.To(true), ptr.To(false)}
		e.Conditions.Ready = Pick(g, []*bool{nil, ptr.To(true), ptr.To(false), ptr.To(false)})
		e.Conditions.Serving, e.Conditions.Terminating = Pick(g, any), Pick(g, any)
		if ptr.Deref(e.Conditions.Ready, true) {
			e.Conditions.Serving = ptr.To(true)
		}
	}
}

// hint sets the hints of an endpoint.
func (g *Generator) hint(e *discoveryv1.Endpoint, hints string) {
	if hints == "" || g.Chance(6) {
		return
	}
	e.Hints = &discoveryv1.EndpointHints{}
	if hints == "zone" || hints == "both" {
		for _, zone := range Pick(g, [][]string{{"east"}, {"west"}, {"north"}, {"east", "west"}}) {
			e.Hints.ForZones = append(e.Hints.ForZones, discoveryv1.ForZone{Name: zone})
		}
	}
	if hints == "node" || hints == "both" {
		for _, node := range Pick(g, [][]string{{"node1"}, {"node2"}, {"node3"}, {"node1", "node2"}}) {
			e.Hints.ForNodes = append(e.Hints.ForNodes, discoveryv1.ForNode{Name: node})
		}
	}
}

// fqdnSlice returns a slice that proxies ignore.
func (a *App) fqdnSlice() *discoveryv1.EndpointSlice {
	s := NewSlice(a.Name(), a.Name()+"-fqdn", 0)
	s.AddressType = discoveryv1.AddressTypeFQDN
	s.Endpoints = []discoveryv1.Endpoint{{Addresses: []string{"pod.example.com"}}}
	for _, p := range a.spec.Ports {
		s.Ports = append(s.Ports, discoveryv1.EndpointPort{
			Name: ptr.To(p.Name), Protocol: ptr.To(p.Protocol), Port: ptr.To[int32](FirstTarget),
		})
	}
	return s
}
