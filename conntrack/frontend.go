package conntrack

import (
	"net/netip"

	"golang.org/x/sys/unix"
)

// Change says what a frontend of a UDP service is now, after its endpoints or itself have changed.
type Change struct {
	// Frontend is the destination as clients see it: a VIP and a port, or a node address and a NodePort. With an
	// unspecified address (0.0.0.0, ::) it is a NodePort on all local addresses of that family, except loopback. A
	// frontend without a port matches nothing.
	Frontend netip.AddrPort

	// Endpoints are all endpoints that any client of the frontend is sent to. A service with several groups of them,
	// as externalTrafficPolicy: Local makes, names the union.
	Endpoints []netip.AddrPort

	// Gone says that the service has this frontend no longer.
	Gone bool
}

// frontends are the changed frontends of one pass.
type frontends struct {
	vips      map[netip.AddrPort]*target
	nodePorts map[nodePort]*target
}

type nodePort struct {
	family Family
	port   uint16
}

// target is where flows to a frontend may go.
type target struct {
	gone    bool
	serving map[netip.AddrPort]struct{}
}

// newFrontends indexes changes. Of two for one frontend the later counts.
func newFrontends(changes []Change) frontends {
	f := frontends{vips: make(map[netip.AddrPort]*target), nodePorts: make(map[nodePort]*target)}
	for _, change := range changes {
		frontend := unmap(change.Frontend)
		switch t := newTarget(change); {
		case !frontend.IsValid() || frontend.Port() == 0:
		case frontend.Addr().IsUnspecified():
			f.nodePorts[nodePort{familyOf(frontend.Addr()), frontend.Port()}] = t
		default:
			f.vips[frontend] = t
		}
	}
	return f
}

func newTarget(change Change) *target {
	t := &target{gone: change.Gone, serving: make(map[netip.AddrPort]struct{}, len(change.Endpoints))}
	for _, endpoint := range change.Endpoints {
		t.serving[unmap(endpoint)] = struct{}{}
	}
	return t
}

// unmap gives addresses the form that decoded flows have.
func unmap(a netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(a.Addr().Unmap().WithZone(""), a.Port())
}

// stale reports whether a flow has to go: a UDP flow to one of the frontends whose answers come from elsewhere than a
// serving endpoint.
//
//   - A flow to a VIP, or to a node address that was named, is stale too if it was never translated (its answers would
//     come from the VIP itself): it dates from when there were no endpoints, or no rules.
//   - A flow to a NodePort on all local addresses is stale under the same rule, but only if its destination is a
//     local address, not loopback, and not a VIP with a port of the same number: for those are the packets that the
//     NodePort's rule would translate. What passes through the node to a port of that number on another host is
//     somebody else's, and so is what another service's VIP translates.
//   - Of a frontend that is gone, translated flows are stale and others are not: the address may be somebody else's
//     now, and those that were never translated are that one's.
//
// Zones play no part: a flow of any zone may have come through the rules. It is deleted in its own zone only.
func (f frontends) stale(flow Flow, isNodeAddr func(netip.AddrPort) bool) bool {
	if flow.Protocol != unix.IPPROTO_UDP {
		return false
	}
	dst := flow.Original.Dst
	if t := f.vips[dst]; t != nil {
		return t.stale(flow)
	}
	t := f.nodePorts[nodePort{flow.Family(), dst.Port()}]
	return t != nil && t.stale(flow) && !dst.Addr().IsLoopback() && isNodeAddr(dst)
}

func (t *target) stale(flow Flow) bool {
	if t.gone {
		return flow.DNATed()
	}
	_, serving := t.serving[flow.Reply.Src]
	return !serving
}
