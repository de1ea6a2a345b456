package differential

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/ptr"
)

// knownReason returns why a difference is expected, "" if it is not.
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
	case d.app.contradictory():
		return "endpoints with the same address contradict each other; kube-proxy uses any of them, nftproxy a ready one"
	case d.app.anyEndpoint(inServiceCIDR):
		return "an endpoint is in a service CIDR; kube-proxy sends packets to it, nftproxy ignores it"
	case d.app.withoutPortNumber():
		return "a port of an EndpointSlice has no number; kube-proxy ignores it, for nftproxy it means all ports"
	case d.from == "a1" && d.app.anyEndpoint(func(e discoveryv1.Endpoint) bool { return e.NodeName == nil }):
		return "an endpoint without a node reaches itself; kube-proxy does not masquerade it, so it gets no answer"
	}
	return ""
}

// knownMemory is knownReason for flows and clients that existed before a
// change.
func (d difference) knownMemory() string {
	if d.kind != inUDPFlow {
		return ""
	}
	kept := d.results[0]["kept"]
	switch {
	case !kept && d.before.anyEndpoint(isReadyButNotServing):
		return "an endpoint is ready but not serving; kube-proxy deletes its UDP flows, nftproxy keeps them"
	case kept && !d.app.has(d.probe):
		return "a UDP frontend was removed; kube-proxy keeps its flows, nftproxy deletes them"
	case kept && !d.app.serves(d.probe):
		return "a UDP service port lost its last endpoint; kube-proxy keeps its flows, nftproxy deletes them"
	}
	return ""
}

// has reports whether proxies must serve the frontend of a probe.
func (a *app) has(p probe) bool {
	if a == nil || a.kind == headlessKind || a.kind == externalNameKind || a.kind == foreignKind {
		return false
	}
	proxied := func(i corev1.LoadBalancerIngress) bool {
		return i.IP == p.to.Addr().String() && ptr.Deref(i.IPMode, "") == corev1.LoadBalancerIPModeProxy
	}
	return slices.ContainsFunc(a.frontends(), func(f probe) bool { return f.to == p.to && f.network == p.network }) &&
		!slices.ContainsFunc(a.live.Status.LoadBalancer.Ingress, proxied)
}

// serves reports whether the service port of a probe has a serving endpoint.
func (a *app) serves(p probe) bool {
	return len(a.places(p, func(e discoveryv1.Endpoint) bool { return ptr.Deref(e.Conditions.Serving, true) })) > 0
}

// places returns the EndpointSlices and ports of some of the endpoints of the
// service port of a probe.
func (a *app) places(p probe, some func(discoveryv1.Endpoint) bool) map[string]bool {
	all := map[string]bool{}
	types := []discoveryv1.AddressType{discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6}
	for _, sp := range a.live.Spec.Ports {
		number := int32(p.to.Port())
		if !strings.EqualFold(string(sp.Protocol), p.network) || sp.Port != number && sp.NodePort != number {
			continue
		}
		for _, s := range a.slices {
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
