package conntrack

import (
	"net/netip"

	"golang.org/x/sys/unix"
)

// stale reports whether a flow has to be deleted: a connection to an endpoint
// that no longer exists (see isOfRemoval), a TCP connection that began while
// the rules were missing, or a UDP flow to a frontend whose replies do not come
// from a serving endpoint. isLocal reports whether an address is local; it is
// called only if the result depends on it. For UDP:
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
	if flow.protocol != unix.IPPROTO_UDP {
		lost := flow.lost() && contains(*c.missed.of(flow.family()), flow.original.dst)
		return lost || f.isOfRemoval(flow, c, isLocal)
	}
	dst, family := flow.original.dst, flow.family()
	nodePort := netip.AddrPortFrom(family.Unspecified(), dst.Port())

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
	if isNodePort && (gone || !serving) && nodeAddrs.contains(dst.Addr(), isLocal) {
		return !serving
	}
	return gone
}
