package differential

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/ptr"

	"github.com/nftproxy/nftproxy/test/lab"
	"github.com/nftproxy/nftproxy/test/random"
)

// knownReason returns why a difference is expected, "" if it is not: the
// objects whose outcome implementations choose, a semicolon, and how nftproxy
// differs. Subjects are not judged there.
func knownReason(d difference) string {
	if d.before != nil {
		if reason := d.knownMemory(); reason != "" {
			return reason
		}
	}
	switch {
	case d.contested:
		return "two Services claim a frontend; kube-proxy serves any of them, nftproxy the one with the priority"
	case d.app == nil:
	case d.app.Contradictory():
		return "endpoints with the same address contradict each other; kube-proxy uses any of them, nftproxy a " +
			"ready one"
	case anyEndpoint(d.app, inServiceCIDR):
		return "an endpoint is in a service CIDR; kube-proxy sends packets to it, nftproxy ignores it"
	case withoutPortNumber(d.app):
		return "a port of an EndpointSlice has no number; kube-proxy ignores it, for nftproxy it means all ports"
	case d.from == "a1" && anyEndpoint(d.app, func(e discoveryv1.Endpoint) bool { return e.NodeName == nil }):
		return "an endpoint without a node reaches itself; kube-proxy does not masquerade it, so it gets no answer"
	}
	return ""
}

// knownMemory is knownReason for flows and clients that existed before a
// change.
func (d difference) knownMemory() string {
	if d.Kind != inUDPFlow {
		return ""
	}
	kept := d.results[0]["kept"]
	switch {
	case !kept && anyEndpoint(d.before, isReadyButNotServing):
		return "an endpoint is ready but not serving; kube-proxy deletes its UDP flows, nftproxy keeps them"
	case kept && (!has(d.app, d.probe) || d.before.Live.UID != d.app.Live.UID): // created again
		return "a UDP frontend was removed; kube-proxy keeps its flows, nftproxy deletes them"
	case kept && !serves(d.app, d.probe):
		return "a UDP service port lost its last endpoint; kube-proxy keeps its flows, nftproxy deletes them"
	}
	return ""
}

// has reports whether proxies must serve the frontend of a probe.
func has(a *random.App, p probe) bool {
	if a == nil || a.Ignored() {
		return false
	}
	proxied := func(i corev1.LoadBalancerIngress) bool {
		return i.IP == p.To.Addr().String() && ptr.Deref(i.IPMode, "") == corev1.LoadBalancerIPModeProxy
	}
	return slices.ContainsFunc(frontends(a), func(f probe) bool { return f.To == p.To && f.Network == p.Network }) &&
		!slices.ContainsFunc(a.Live.Status.LoadBalancer.Ingress, proxied)
}

// serves reports whether the service port of a probe has a serving endpoint.
func serves(a *random.App, p probe) bool {
	return len(places(a, p, func(e discoveryv1.Endpoint) bool { return ptr.Deref(e.Conditions.Serving, true) })) > 0
}

// places returns the EndpointSlices and ports of some of the endpoints of the
// service port of a probe.
func places(a *random.App, p probe, some func(discoveryv1.Endpoint) bool) map[string]bool {
	all := map[string]bool{}
	types := []discoveryv1.AddressType{discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6}
	for _, sp := range a.Live.Spec.Ports {
		number := int32(p.To.Port())
		if !strings.EqualFold(string(sp.Protocol), p.Network) || sp.Port != number && sp.NodePort != number {
			continue
		}
		for _, s := range a.Slices {
			if s.AddressType != types[p.family()] || !slices.ContainsFunc(s.Endpoints, some) {
				continue
			}
			for _, ep := range s.Ports {
				if *ep.Name == sp.Name && *ep.Protocol == sp.Protocol {
					all[fmt.Sprint(s.Name, ptr.Deref(ep.Port, 0))] = true
				}
			}
		}
	}
	return all
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
func anyEndpoint(a *random.App, has func(discoveryv1.Endpoint) bool) bool {
	for _, s := range a.Slices {
		if slices.ContainsFunc(s.Endpoints, has) {
			return true
		}
	}
	return false
}

// withoutPortNumber reports whether a port of a slice has no number.
func withoutPortNumber(a *random.App) bool {
	for _, s := range a.Slices {
		if slices.ContainsFunc(s.Ports, func(p discoveryv1.EndpointPort) bool { return p.Port == nil }) {
			return true
		}
	}
	return false
}
