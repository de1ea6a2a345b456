package differential

import (
	"maps"
	"net/netip"
	"slices"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/ptr"

	"github.com/nftproxy/nftproxy/test/lab"
	"github.com/nftproxy/nftproxy/test/lab/frontend"
	"github.com/nftproxy/nftproxy/test/lab/labtest"
	"github.com/nftproxy/nftproxy/test/random"
)

// isKnown reports whether a difference is expected. nftproxy must always do
// what the oracle allows. Its health checks are compared with those of
// kube-proxy.
func (d *difference) isKnown() bool {
	return (d.side == 0 || d.Network == "http" || labtest.Subject() != "") && d.knownReason() != ""
}

// knownReason returns why kube-proxy, or another subject, may differ from the
// oracle, "" if it may not: the objects whose outcome implementations choose, a
// semicolon, and how nftproxy differs.
func (d *difference) knownReason() string {
	switch {
	case d.Kind == inUDPFlow && anyEndpoint(d.before, isReadyButNotServing):
		return "an endpoint is ready but not serving; kube-proxy deletes its UDP flows, nftproxy keeps them"
	case d.Kind == inUDPFlow && !slices.ContainsFunc(slices.Collect(maps.Keys(d.want)), isAnswer):
		return "a UDP frontend was removed or lost its last endpoint; kube-proxy keeps its flows, nftproxy deletes " +
			"them"
	case d.contested:
		return "two Services claim a frontend; kube-proxy serves any of them, nftproxy the one with the priority"
	case d.Kind == frontend.ExternalIP && isServiceAddr(d.To.Addr()):
		return "an external IP is the ClusterIP of another Service; kube-proxy masquerades its packets like those to " +
			"the ClusterIP, nftproxy as those to an external IP"
	case d.app == nil:
	case d.app.Contradictory():
		return "endpoints with the same address contradict each other; kube-proxy uses any of them, nftproxy a " +
			"ready one"
	case anyEndpoint(d.app, inServiceCIDR):
		return "an endpoint is in a service CIDR; kube-proxy sends packets to it, nftproxy ignores it"
	case withoutPortNumber(d.app):
		return "a port of an EndpointSlice has no number; kube-proxy ignores it, for nftproxy it means all ports"
	case d.from == fromA1 && anyEndpoint(d.app, func(e discoveryv1.Endpoint) bool { return e.NodeName == nil }):
		return "an endpoint without a node reaches itself; kube-proxy does not masquerade it, so it gets no answer"
	}
	return ""
}

// inServiceCIDR reports whether an endpoint has an address of a service CIDR.
func inServiceCIDR(e discoveryv1.Endpoint) bool {
	addr, err := netip.ParseAddr(e.Addresses[0])
	return err == nil && isServiceAddr(addr)
}

// isServiceAddr reports whether an address is in a service CIDR.
func isServiceAddr(addr netip.Addr) bool {
	return slices.ContainsFunc(lab.ServiceRanges(), func(r netip.Prefix) bool { return r.Contains(addr) })
}

func isReadyButNotServing(e discoveryv1.Endpoint) bool {
	return ptr.Deref(e.Conditions.Ready, true) && !ptr.Deref(e.Conditions.Serving, true)
}

// anyEndpoint reports whether an endpoint has a property.
func anyEndpoint(a *random.App, has func(discoveryv1.Endpoint) bool) bool {
	return slices.ContainsFunc(a.Slices(), func(s *discoveryv1.EndpointSlice) bool {
		return slices.ContainsFunc(s.Endpoints, has)
	})
}

// withoutPortNumber reports whether a port of a slice has no number.
func withoutPortNumber(a *random.App) bool {
	return slices.ContainsFunc(a.Slices(), func(s *discoveryv1.EndpointSlice) bool {
		return slices.ContainsFunc(s.Ports, func(p discoveryv1.EndpointPort) bool { return p.Port == nil })
	})
}
