package conntrack

import (
	"net/netip"

	"golang.org/x/sys/unix"
)

// stale reports whether a flow has to be deleted: a connection to an endpoint
// that no longer exists (see isOfRemoval), or a UDP flow, or an attempt to
// connect that has no answer, to a frontend whose replies do not come from a
// serving endpoint. isLocal reports whether an address is local; it is called
// only if the result depends on it. For flows and attempts:
//
//   - A flow to a VIP is also stale if it was never translated, so that its
//     replies would come from the VIP itself. It was created when the VIP
//     had no endpoints or no rules.
//   - The same rule applies to a flow to a NodePort on an address that
//     NodePorts listen on. A VIP with the same address and port takes
//     precedence, as in the rules. A flow to the same port of another host is
//     only forwarded by the node, and stays.
//   - A translated flow to a frontend that is gone is stale. The same rule
//     applies to a flow to a NodePort on a former node address. A flow that
//     was never translated stays: the address may belong to another host
//     now.
//
// Zones do not matter: the rules see the packets of all zones. A flow is
// deleted in its own zone only.
func (f *frontends) stale(flow trackedFlow, c *check, isLocal func(netip.Addr) bool) bool {
	if f.isOfRemoval(flow, c, isLocal) {
		return true
	}
	if flow.protocol != unix.IPPROTO_UDP && !flow.attempt() {
		return false
	}
	family := flow.family()
	dst := key{flow.protocol, flow.original.dst}
	nodePort := key{flow.protocol, netip.AddrPortFrom(family.Unspecified(), dst.at.Port())}

	f.mu.RLock()
	s := f.of(family)
	vipEndpoints, isVIP := s.endpoints[dst]
	nodePortEndpoints, isNodePort := s.endpoints[nodePort]
	nodeAddrs := s.nodeAddrs
	f.mu.RUnlock()

	if isVIP {
		return !contains(vipEndpoints, flow.reply.src)
	}
	serving := isNodePort && contains(nodePortEndpoints, flow.reply.src)
	gone := flow.translated() && c.isGone(dst, nodePort, isNodePort, nodeAddrs, isLocal)
	if isNodePort && (gone || !serving) && nodeAddrs.contains(dst.at.Addr(), isLocal) {
		return !serving
	}
	return gone
}
