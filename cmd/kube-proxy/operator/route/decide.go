package route

import (
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/proxier/ruleset"
)

// Packet is the first packet of a connection, with the endpoint as its
// destination.
type Packet struct {
	// Source is the client. It is invalid if the client is hypothetical and
	// this node has no route to it.
	Source      netip.Addr
	Destination netip.Addr
	// OfNode reports whether this node sends the packet.
	OfNode bool
	// In is the interface on which the packet arrives, "" if it is unknown or
	// this node sends the packet.
	In string
	// Mark is the mark of the packet when it is routed.
	Mark uint32
}

// Facts are what the kernel answers about a packet.
type Facts struct {
	Packet
	// There is the way of the packet, Back the way of the answer. Back is zero
	// unless the packet leaves and its source is known.
	There, Back Leg
	// NoCarrier reports whether nothing is connected to the interface by which
	// the packet leaves.
	NoCarrier bool
	// Neighbour is the state of the neighbour to which the packet is sent.
	Neighbour Neighbour
}

// Leg is what the kernel answers about one direction.
type Leg struct {
	Source, Destination netip.Addr
	// In is the interface on which the packet arrives, "" as in Packet.
	In     string
	OfNode bool
	// Refused is the error of the lookup as the kernel does it for a packet
	// that arrives on In. Unreachable is the error of the lookup for a packet
	// of this node, which depends on no setting of an interface.
	Refused, Unreachable unix.Errno
	// Local reports whether this node is the receiver. Otherwise the packet
	// leaves by Out, to the next hop Via, which is the destination itself if
	// Via is invalid.
	Local bool
	Out   string
	Via   netip.Addr
	// NotForwarding is the setting that keeps the kernel from forwarding, "" if
	// none does.
	NotForwarding string
	// Filter is the rp_filter of In, FilterSetting the setting that determines
	// it, and ToSource the interface of the route to the source, "" without
	// one.
	Filter        int
	FilterSetting string
	ToSource      string
	// SourceIsLocal reports whether the source is an address of this node.
	SourceIsLocal bool
}

// Strict is the value of rp_filter that drops packets from a source to which
// the best route leads by another interface. With any other value than 0, a
// source without a route is enough.
const Strict = 1

// Neighbour is the state of an entry of the neighbour table.
type Neighbour uint8

// States of neighbours.
const (
	NeighbourUnknown   Neighbour = iota // no entry, or none is needed
	NeighbourKnown                      // it has answered
	NeighbourResolving                  // it is asked, and has not answered yet
	NeighbourFailed                     // it has not answered
)

// reason returns a reason with a remedy of its own.
func reason(code ruleset.Code, text, remedy string) ruleset.Reason {
	return ruleset.Reason{Code: code, Text: text, Remedy: remedy}
}

// Decide returns the one cause why a packet or the answer to it does not
// arrive: the first one on the way of the packet. It is zero if the kernel
// sends both.
func Decide(f *Facts) ruleset.Reason {
	if c := f.There.cause("packets"); c.Code != "" {
		return c
	}
	if !f.There.Local {
		if c := f.hop(); c.Code != "" {
			return c
		}
	}
	c := f.Back.cause("answers")
	if c.Code != "" {
		c.Text = "the answer does not reach the client: " + c.Text
	}
	return c
}

// cause returns why the kernel does not route packets of a leg.
func (l *Leg) cause(what string) ruleset.Reason {
	switch {
	case !l.Destination.IsValid():
		return ruleset.Reason{}
	case l.Unreachable != 0 && l.Refused != 0, l.Unreachable != 0 && l.In == "":
		return l.unreachable()
	case !l.Local && !l.OfNode && l.NotForwarding != "":
		return reason(ruleset.ForwardingOff,
			fmt.Sprintf("%s is 0: this node does not forward %s to %s", l.NotForwarding, what, l.Destination),
			"sysctl -w "+l.NotForwarding+"=1, and set it in /etc/sysctl.d")
	case l.In == "" || l.Refused == 0:
		return ruleset.Reason{}
	case l.Filter != 0 && l.ToSource == "":
		return reason(ruleset.ReversePath,
			fmt.Sprintf("%s, with rp_filter %d, drops %s from %s, because this node has no route to this source", l.In,
				l.Filter, what, l.Source), "add a route to "+l.Source.String())
	case l.Filter == Strict && l.ToSource != l.In:
		return reason(ruleset.ReversePath,
			fmt.Sprintf("%s has a strict rp_filter (%s is 1) and drops %s from %s, because the route to this source "+
				"leads through %s", l.In, l.FilterSetting, what, l.Source, l.ToSource),
			fmt.Sprintf("sysctl -w %s=2 (loose), and set it in /etc/sysctl.d, or make the route to the source lead "+
				"through %s", l.FilterSetting, l.In))
	case l.SourceIsLocal:
		return reason(ruleset.MartianSource, fmt.Sprintf("%s are not accepted on %s: their source %s is an address of "+
			"this node", what, l.In, l.Source), "find the host that uses the address, or the rule that sets it")
	}
	return reason(ruleset.RouteRefused,
		fmt.Sprintf("the kernel does not route %s from %s to %s that arrive on %s: %v", what, l.Source, l.Destination,
			l.In, l.Refused),
		fmt.Sprintf("look at the rules of routing (ip rule) and at ip route get %s from %s iif %s", l.Destination,
			l.Source, l.In))
}

// routeTypes are the types of routes that refuse packets, by their error
// (fib_props of net/ipv4/fib_semantics.c).
var routeTypes = map[unix.Errno]string{
	unix.EINVAL: "blackhole", unix.EACCES: "prohibit", unix.EHOSTUNREACH: "unreachable",
}

// unreachable is the cause of a leg whose destination has no route.
func (l *Leg) unreachable() ruleset.Reason {
	if typ, ok := routeTypes[l.Unreachable]; ok {
		return reason(ruleset.RouteForbids, fmt.Sprintf("the route to %s is of type %s", l.Destination, typ),
			fmt.Sprintf("find who added it: ip route show table all type %s", typ))
	}
	return reason(ruleset.NoRoute, fmt.Sprintf("this node has no route to %s", l.Destination), AddRoute)
}

// AddRoute is the remedy of a missing route.
const AddRoute = "add the route, or look at the network plugin of this node, which should add it"

// hop returns why the packet does not arrive at the next hop.
func (f *Facts) hop() ruleset.Reason {
	l := &f.There
	what := fmt.Sprintf("%s on %s", l.Destination, l.Out)
	if l.Via.IsValid() {
		what = fmt.Sprintf("the next hop %s to %s on %s", l.Via, l.Destination, l.Out)
	}
	protocol := "ARP"
	if l.Destination.Is6() {
		protocol = "neighbour discovery"
	}
	switch {
	case f.NoCarrier:
		return reason(ruleset.NoCarrier, fmt.Sprintf("interface %s, which leads to %s, has no carrier", l.Out,
			l.Destination), "ip link show "+l.Out+": its other end is down or gone")
	case f.Neighbour == NeighbourFailed, f.Neighbour == NeighbourResolving:
		return reason(ruleset.SilentNeighbour, fmt.Sprintf("%s does not answer %s", what, protocol),
			"find out whether the pod or node still runs: its endpoints should not be ready")
	}
	return ruleset.Reason{}
}

// Way describes the way of a packet that has no cause to fail.
func (f *Facts) Way() string {
	l := &f.There
	way := "through " + l.Out
	switch {
	case l.Local:
		way = "to this node"
	case l.Via.IsValid():
		way += ", next hop " + l.Via.String()
	}
	if back := &f.Back; f.In != "" && back.Out != "" && back.Out != f.In {
		way += fmt.Sprintf("; the answer leaves by %s, not by %s", back.Out, f.In)
	}
	return way
}
