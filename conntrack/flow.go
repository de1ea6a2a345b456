package conntrack

import (
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"
)

// Family is an address family, with the numbers of nfnetlink (NFPROTO_IPV4,
// NFPROTO_IPV6).
type Family uint8

// The address families of flows.
const (
	IPv4 Family = unix.NFPROTO_IPV4
	IPv6 Family = unix.NFPROTO_IPV6
)

func (f Family) String() string {
	switch f {
	case IPv4:
		return "IPv4"
	case IPv6:
		return "IPv6"
	default:
		return fmt.Sprintf("family %d", uint8(f))
	}
}

// familyOf returns the family of a valid address that is not IPv4-mapped.
func familyOf(addr netip.Addr) Family {
	if addr.Is4() {
		return IPv4
	}
	return IPv6
}

// Tuple is one direction of a flow. Protocols without ports have port 0.
type Tuple struct {
	Src, Dst netip.AddrPort
}

// ZoneDirection selects the directions of a flow that its zone applies to.
type ZoneDirection uint8

// The directions of a zone: both (`ct zone set`), or one of them (`ct original
// zone set`, `ct reply zone set`). In the other direction, the flow is in zone
// 0.
const (
	ZoneBoth ZoneDirection = iota
	ZoneOriginal
	ZoneReply
)

// Zone is a conntrack zone. Tuples are unique only within a zone.
type Zone struct {
	ID        uint16
	Direction ZoneDirection
}

// Flow is an entry of the connection tracking table.
type Flow struct {
	Protocol uint8 // unix.IPPROTO_UDP, ...
	Original Tuple // of the first packet: from the client, to the destination it used
	Reply    Tuple // of the answers: after DNAT, Src is the endpoint; after SNAT, Dst is not the client
	Zone     Zone
	Status   uint32 // IPS_* bits of nf_conntrack_common.h
	Mark     uint32
	ID       uint32 // CTA_ID: a hash of the entry's address in memory and its original tuple
}

// Family returns the address family of the flow.
func (f Flow) Family() Family { return familyOf(f.Original.Dst.Addr()) }

// DNATed reports whether the source of the answers differs from the destination
// of the first packet.
func (f Flow) DNATed() bool { return f.Reply.Src != f.Original.Dst }

// String returns the flow in a form similar to `conntrack -L`.
func (f Flow) String() string {
	return fmt.Sprintf("protocol %d zone %d src=%v dst=%v reply src=%v dst=%v",
		f.Protocol, f.Zone.ID, f.Original.Src, f.Original.Dst, f.Reply.Src, f.Reply.Dst)
}
