package differential

import (
	"slices"
	"strings"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/ptr"
)

// knownReason returns why a difference is expected, "" if it is not. ARCHITECTURE.md
// has the decisions behind it.
func knownReason(d difference) string {
	if d.app == nil {
		return ""
	}
	if d.before != nil {
		if reason := d.knownMemory(); reason != "" {
			return reason
		}
	}
	switch {
	case d.app.contradictory():
		return "endpoints with the same address contradict each other; kube-proxy uses any of them, nftproxy a ready one"
	case d.app.anyEndpoint(inServiceCIDR):
		return "an endpoint is in a service CIDR; kube-proxy sends packets to it, nftproxy ignores it"
	case d.app.withoutPortNumber():
		return "a port of an EndpointSlice has no number; kube-proxy ignores it, for nftproxy it means all ports"
	}
	return ""
}

// knownMemory is knownReason for flows and clients that existed before a
// change.
func (d difference) knownMemory() string {
	kept := d.results[0]["kept"]
	switch {
	case d.kind == inUDPFlow && !kept && d.before.anyEndpoint(isReadyButNotServing):
		return "an endpoint is ready but not serving; kube-proxy deletes its UDP flows, nftproxy keeps them"
	case d.kind == inUDPFlow && kept && !d.app.serves(d.probe):
		return "a UDP service port lost its last endpoint; kube-proxy keeps its flows, nftproxy deletes them"
	case d.app.moved(d.before, d.address):
		return "an endpoint was in no EndpointSlice for a moment; a proxy that has not synced then keeps its flows and clients"
	}
	return ""
}

// serves reports whether a service port has a serving endpoint of the family.
func (a *app) serves(p probe) bool {
	types := []discoveryv1.AddressType{discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6}
	for _, sp := range a.live.Spec.Ports {
		number := sp.Port
		if p.to.Port() >= 30000 {
			number = sp.NodePort
		}
		if number != int32(p.to.Port()) || !strings.EqualFold(string(sp.Protocol), p.network) {
			continue
		}
		for _, s := range a.slices {
			matches := func(ep discoveryv1.EndpointPort) bool {
				return *ep.Name == sp.Name && *ep.Protocol == sp.Protocol
			}
			serving := func(e discoveryv1.Endpoint) bool { return ptr.Deref(e.Conditions.Serving, true) }
			if s.AddressType == types[p.family()] && slices.ContainsFunc(s.Ports, matches) &&
				slices.ContainsFunc(s.Endpoints, serving) {
				return true
			}
		}
	}
	return false
}

// moved reports whether no slice has had the address before and after.
func (a *app) moved(before *app, address string) bool {
	has := func(e discoveryv1.Endpoint) bool { return e.Addresses[0] == address }
	for _, s := range before.slices {
		for _, now := range a.slices {
			if now.Name == s.Name && slices.ContainsFunc(now.Endpoints, has) && slices.ContainsFunc(s.Endpoints, has) {
				return false
			}
		}
	}
	return true
}
