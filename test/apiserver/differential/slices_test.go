package differential

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

// drawSlices chooses EndpointSlices for both families.
func (g *generator) drawSlices(a *app) {
	a.slices = nil
	hints := pick(g, []string{"", "", "", "", "zone", "zone", "node", "both"})
	fault := pick(g, faults())
	for f := range 2 {
		for i := range pick(g, []int{0, 1, 1, 1, 1, 2, 2, 3}) {
			a.slices = append(a.slices, g.slice(a, f, i, hints))
		}
	}
	if fault != contradiction {
		a.unify()
	}
	g.spoil(a, fault)
	if g.chance(4) {
		a.slices = append(a.slices, a.fqdnSlice())
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
func (g *generator) spoil(a *app, fault fault) {
	if len(a.slices) == 0 {
		return
	}
	s := pick(g, a.slices)
	f := 0
	if s.AddressType == discoveryv1.AddressTypeIPv6 {
		f = 1
	}
	switch {
	case fault == endpointInServiceCIDR && len(s.Endpoints) > 0:
		s.Endpoints[0].Addresses = []string{lab.AddrIn(lab.ServiceRanges()[f], 0x8000+a.slot).String()}
	case fault == portWithoutNumber && len(s.Ports) > 0:
		s.Ports[0].Port = nil
	case fault == readyButNotServing && len(s.Endpoints) > 0:
		s.Endpoints[0].Conditions = discoveryv1.EndpointConditions{Ready: ptr.To(true), Serving: ptr.To(false)}
	}
}

// unify makes endpoints with the same address equal.
func (a *app) unify() {
	seen := map[string]discoveryv1.Endpoint{}
	for _, s := range a.slices {
		for i, e := range s.Endpoints {
			if first, ok := seen[e.Addresses[0]]; ok {
				s.Endpoints[i] = *first.DeepCopy()
			}
			seen[e.Addresses[0]] = s.Endpoints[i]
		}
	}
}

// contradictory reports whether endpoints with the same address differ.
func (a *app) contradictory() bool {
	seen := map[string]discoveryv1.Endpoint{}
	for _, s := range a.slices {
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

func (g *generator) slice(a *app, f, i int, hints string) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Name: fmt.Sprintf("%s-ipv%d-%d", a.name(), 4+2*f, i), Namespace: namespace,
			Labels: map[string]string{discoveryv1.LabelServiceName: a.name()},
		},
		AddressType: []discoveryv1.AddressType{discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6}[f],
	}
	if g.chance(3) {
		s.Labels[corev1.IsHeadlessService] = ""
	}
	for _, p := range a.ports {
		if g.chance(96) {
			s.Ports = append(s.Ports, g.endpointPort(p))
		}
	}
	names := slices.Sorted(maps.Keys(g.pods))
	for range pick(g, []int{0, 1, 1, 2, 2, 3, 4}) {
		name := pick(g, names)
		e := discoveryv1.Endpoint{Addresses: []string{g.pods[name][f].String()}}
		if g.chance(3) { // only the first one counts
			e.Addresses = append(e.Addresses, g.pods[pick(g, names)][f].String())
		}
		g.place(&e, name)
		g.setConditions(&e)
		g.hint(&e, hints)
		s.Endpoints = append(s.Endpoints, e)
	}
	return s
}

// endpointPort returns the port of endpoints for a port of the Service.
func (g *generator) endpointPort(p port) discoveryv1.EndpointPort {
	ep := discoveryv1.EndpointPort{
		Name: ptr.To(p.name), Protocol: ptr.To(p.protocol), Port: ptr.To(pick(g, []int32{firstTarget, secondTarget})),
	}
	if g.chance(1) {
		ep.Protocol = ptr.To(corev1.ProtocolTCP)
	}
	return ep
}

// place sets the node of an endpoint, usually the right one.
func (g *generator) place(e *discoveryv1.Endpoint, name string) {
	node := "node1"
	if name[0] == 'b' || name == "node2" {
		node = "node2"
	}
	switch choice := g.IntN(100); {
	case choice < 84:
		e.NodeName = ptr.To(node)
	case choice < 92:
		e.NodeName = ptr.To(pick(g, []string{"node1", "node2", "node3"}))
	}
}

// drawConditions changes conditions of endpoints.
func (g *generator) drawConditions(a *app) {
	contradictory := a.contradictory()
	for _, s := range a.slices {
		for i := range s.Endpoints {
			if g.chance(60) {
				g.setConditions(&s.Endpoints[i])
			}
		}
	}
	if !contradictory {
		a.unify()
	}
}

func (g *generator) setConditions(e *discoveryv1.Endpoint) {
	e.Conditions = discoveryv1.EndpointConditions{}
	if g.chance(40) {
		e.Conditions.Ready = ptr.To(true)
	}
	if g.chance(35) {
		any := []*bool{nil, ptr.To(true), ptr.To(false)}
		e.Conditions.Ready = pick(g, []*bool{nil, ptr.To(true), ptr.To(false), ptr.To(false)})
		e.Conditions.Serving, e.Conditions.Terminating = pick(g, any), pick(g, any)
		if ptr.Deref(e.Conditions.Ready, true) {
			e.Conditions.Serving = ptr.To(true)
		}
	}
}

// hint sets the hints of an endpoint.
func (g *generator) hint(e *discoveryv1.Endpoint, hints string) {
	if hints == "" || g.chance(6) {
		return
	}
	e.Hints = &discoveryv1.EndpointHints{}
	if hints == "zone" || hints == "both" {
		for _, zone := range pick(g, [][]string{{"east"}, {"west"}, {"north"}, {"east", "west"}}) {
			e.Hints.ForZones = append(e.Hints.ForZones, discoveryv1.ForZone{Name: zone})
		}
	}
	if hints == "node" || hints == "both" {
		for _, node := range pick(g, [][]string{{"node1"}, {"node2"}, {"node3"}, {"node1", "node2"}}) {
			e.Hints.ForNodes = append(e.Hints.ForNodes, discoveryv1.ForNode{Name: node})
		}
	}
}

// inServiceCIDR reports whether an endpoint has an address of a service CIDR.
func inServiceCIDR(e discoveryv1.Endpoint) bool {
	addr, err := netip.ParseAddr(e.Addresses[0])
	return err == nil && (lab.ServiceRanges()[0].Contains(addr) || lab.ServiceRanges()[1].Contains(addr))
}

func isReadyButNotServing(e discoveryv1.Endpoint) bool {
	return ptr.Deref(e.Conditions.Ready, true) && !ptr.Deref(e.Conditions.Serving, true)
}

// anyEndpoint reports whether an endpoint has a property.
func (a *app) anyEndpoint(has func(discoveryv1.Endpoint) bool) bool {
	for _, s := range a.slices {
		if slices.ContainsFunc(s.Endpoints, has) {
			return true
		}
	}
	return false
}

// withoutPortNumber reports whether a port of a slice has no number.
func (a *app) withoutPortNumber() bool {
	for _, s := range a.slices {
		if slices.ContainsFunc(s.Ports, func(p discoveryv1.EndpointPort) bool { return p.Port == nil }) {
			return true
		}
	}
	return false
}

// fqdnSlice returns a slice that proxies ignore.
func (a *app) fqdnSlice() *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Name: a.name() + "-fqdn", Namespace: namespace,
			Labels: map[string]string{discoveryv1.LabelServiceName: a.name()},
		},
		AddressType: discoveryv1.AddressTypeFQDN,
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{"pod.example.com"}}},
	}
	for _, p := range a.ports {
		s.Ports = append(s.Ports, discoveryv1.EndpointPort{
			Name: ptr.To(p.name), Protocol: ptr.To(p.protocol), Port: ptr.To[int32](firstTarget),
		})
	}
	return s
}
