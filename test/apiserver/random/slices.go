package random

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/nftproxy/nftproxy/test/lab"
)

// drawSlices chooses EndpointSlices for both families.
func (g *Generator) drawSlices(a *App) {
	a.Slices = nil
	hints := Pick(g, []string{"", "", "", "", "zone", "zone", "node", "both"})
	fault := Pick(g, faults())
	for f := range 2 {
		for i := range Pick(g, []int{0, 1, 1, 1, 1, 2, 2, 3}) {
			a.Slices = append(a.Slices, g.slice(a, f, i, hints))
		}
	}
	if fault != contradiction {
		a.unify()
	}
	g.spoil(a, fault)
	if g.Chance(4) {
		a.Slices = append(a.Slices, a.fqdnSlice())
	}
}

// fault is something in EndpointSlices for which the proxies are known to
// differ.
type fault int

const (
	noFault fault = iota
	contradiction
	endpointInServiceCIDR
	portWithoutNumber
	readyButNotServing
)

// faults returns faults with their frequency.
func faults() []fault {
	all := make([]fault, 40)
	return append(all, contradiction, endpointInServiceCIDR, portWithoutNumber, readyButNotServing)
}

// spoil adds a fault to one of the slices.
func (g *Generator) spoil(a *App, fault fault) {
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

// unify makes endpoints with the same address equal.
func (a *App) unify() {
	seen := map[string]discoveryv1.Endpoint{}
	for _, s := range a.Slices {
		for i, e := range s.Endpoints {
			if first, ok := seen[e.Addresses[0]]; ok {
				s.Endpoints[i] = *first.DeepCopy()
			}
			seen[e.Addresses[0]] = s.Endpoints[i]
		}
	}
}

// Contradictory reports whether endpoints with the same address differ.
func (a *App) Contradictory() bool {
	seen := map[string]discoveryv1.Endpoint{}
	for _, s := range a.Slices {
		for _, e := range s.Endpoints {
			first, ok := seen[e.Addresses[0]]
			if ok && !equality.Semantic.DeepEqual(first, e) {
				return true
			}
			seen[e.Addresses[0]] = e
		}
	}
	return false
}

func (g *Generator) slice(a *App, f, i int, hints string) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Name: fmt.Sprintf("%s-ipv%d-%d", a.Name(), 4+2*f, i), Namespace: Namespace,
			Labels: map[string]string{discoveryv1.LabelServiceName: a.Name()},
		},
		AddressType: []discoveryv1.AddressType{discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6}[f],
	}
	if g.Chance(3) {
		s.Labels[corev1.IsHeadlessService] = ""
	}
	for _, p := range a.ports {
		if g.Chance(96) {
			s.Ports = append(s.Ports, g.endpointPort(p))
		}
	}
	names := slices.Sorted(maps.Keys(g.endpoints))
	for range Pick(g, []int{0, 1, 1, 2, 2, 3, 4}) {
		name := Pick(g, names)
		e := discoveryv1.Endpoint{Addresses: []string{g.endpoints[name][f].String()}}
		if g.Chance(3) { // only the first one counts
			e.Addresses = append(e.Addresses, g.endpoints[Pick(g, names)][f].String())
		}
		g.place(&e, name)
		g.setConditions(&e)
		g.hint(&e, hints)
		s.Endpoints = append(s.Endpoints, e)
	}
	return s
}

// endpointPort returns the port of endpoints for a port of the Service.
func (g *Generator) endpointPort(p port) discoveryv1.EndpointPort {
	ep := discoveryv1.EndpointPort{
		Name: ptr.To(p.name), Protocol: ptr.To(p.protocol), Port: ptr.To(Pick(g, []int32{FirstTarget, SecondTarget})),
	}
	if g.Chance(1) {
		ep.Protocol = ptr.To(corev1.ProtocolTCP)
	}
	return ep
}

// place sets the node of an endpoint, usually the right one.
func (g *Generator) place(e *discoveryv1.Endpoint, name string) {
	node := "node1"
	if name[0] == 'b' || name == "node2" {
		node = "node2"
	}
	switch choice := g.IntN(100); {
	case choice < 84:
		e.NodeName = ptr.To(node)
	case choice < 92:
		e.NodeName = ptr.To(Pick(g, []string{"node1", "node2", "node3"}))
	}
}

// drawConditions changes conditions of endpoints.
func (g *Generator) drawConditions(a *App) {
	contradictory := a.Contradictory()
	for _, s := range a.Slices {
		for i := range s.Endpoints {
			if g.Chance(60) {
				g.setConditions(&s.Endpoints[i])
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
	s := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Name: a.Name() + "-fqdn", Namespace: Namespace,
			Labels: map[string]string{discoveryv1.LabelServiceName: a.Name()},
		},
		AddressType: discoveryv1.AddressTypeFQDN,
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{"pod.example.com"}}},
	}
	for _, p := range a.ports {
		s.Ports = append(s.Ports, discoveryv1.EndpointPort{
			Name: ptr.To(p.name), Protocol: ptr.To(p.protocol), Port: ptr.To[int32](FirstTarget),
		})
	}
	return s
}
