package conntrack

import (
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"
)

// Family is an address family, as nfnetlink counts them (NFPROTO_IPV4, NFPROTO_IPV6).
type Family uint8

// The families of addresses that flows have.
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

// familyOf is the family of a valid address that is not IPv4-mapped.
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

// ZoneDirection says in which directions a flow's zone applies.
type ZoneDirection uint8

// The directions of a zone: both (`ct zone set`), or one of them (`ct original zone set`, `ct reply zone set`); in the
// other one the flow is in zone 0.
const (
	ZoneBoth ZoneDirection = iota
	ZoneOriginal
	ZoneReply
)

// Zone is a conntrack zone: tuples are unique within a zone only.
type Zone struct {
	ID        uint16
	Direction ZoneDirection
}

// Flow is an entry of the connection tracking table.
type Flow struct {
	Protocol uint8 // unix.IPPROTO_UDP, ...
	Original Tuple // as the first packet came: from the client, to the destination it asked for
	Reply    Tuple // as answers come: after DNAT, Src is the endpoint; after SNAT, Dst is not the client
	Zone     Zone
	Status   uint32 // IPS_* bits of nf_conntrack_common.h
	Mark     uint32
	ID       uint32 // CTA_ID: the kernel's hash of the entry's address and its original tuple
}

// Family is the address family of the flow.
func (f Flow) Family() Family { return familyOf(f.Original.Dst.Addr()) }

// DNATed reports whether answers come from elsewhere than where the first packet was sent.
func (f Flow) DNATed() bool { return f.Reply.Src != f.Original.Dst }

// String prints the flow in the manner of `conntrack -L`.
func (f Flow) String() string {
	return fmt.Sprintf("protocol %d zone %d src=%v dst=%v reply src=%v dst=%v",
		f.Protocol, f.Zone.ID, f.Original.Src, f.Original.Dst, f.Reply.Src, f.Reply.Dst)
}
