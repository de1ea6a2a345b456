package conntrack

import (
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/nft/nfnetlink"
)

// Family is an address family.
type Family = nfnetlink.Family

// The address families of flows.
const (
	IPv4 = nfnetlink.IPv4
	IPv6 = nfnetlink.IPv6
)

// familyOf returns the family of a valid address that is not IPv4-mapped.
func familyOf(addr netip.Addr) Family { return nfnetlink.FamilyOf(addr) }

// trackedFlow is an entry of the connection tracking table.
type trackedFlow struct {
	protocol uint8 // unix.IPPROTO_UDP, ...
	original tuple // of the first packet: from the client to the frontend
	reply    tuple // of the replies: after DNAT, src is the endpoint; after SNAT, dst is not the client
	zone     zone
	status   uint32 // bits, see connection.go
	state    uint8  // of TCP and SCTP, see connection.go
	id       uint32 // CTA_ID: a hash of the entry's address in memory and its original tuple
}

// tuple is one direction of a flow. Protocols without ports have port 0.
type tuple struct {
	src, dst netip.AddrPort
}

// zone is a conntrack zone. Tuples are unique only within a zone.
type zone struct {
	id        uint16
	direction zoneDirection
}

// zoneDirection selects the directions of a flow that its zone applies to.
type zoneDirection uint8

// The directions of a zone: both (`ct zone set`), or one of them (`ct
// original zone set`, `ct reply zone set`). In the other direction, the flow
// is in zone 0.
const (
	zoneBoth zoneDirection = iota
	zoneOriginal
	zoneReply
)

func (f trackedFlow) family() Family { return familyOf(f.original.dst.Addr()) }

// translated reports whether the source of the replies differs from the
// destination of the first packet (DNAT).
func (f trackedFlow) translated() bool { return f.reply.src != f.original.dst }

// answered reports whether a packet of the endpoint was seen.
func (f trackedFlow) answered() bool { return f.status&statusSeenReply != 0 }

// attempt reports whether a flow is an attempt to connect by TCP or SCTP that
// has no answer. A TCP connection whose answers take another way has another
// state.
func (f trackedFlow) attempt() bool {
	return !f.answered() && (f.protocol == unix.IPPROTO_TCP && f.state == tcpSynSent || f.protocol == unix.IPPROTO_SCTP)
}

// ended reports whether both sides of a TCP or SCTP connection have ended it.
func (f trackedFlow) ended() bool {
	switch f.protocol {
	case unix.IPPROTO_TCP:
		return f.state == tcpTimeWait || f.state == tcpClose
	case unix.IPPROTO_SCTP:
		return f.state == sctpClosed
	}
	return false
}

// opening reports whether the handshake of a TCP or SCTP connection has begun
// and not ended.
func (f trackedFlow) opening() bool {
	switch {
	case f.protocol == unix.IPPROTO_TCP && f.status&statusOffload == 0:
		return f.connecting()
	case f.protocol == unix.IPPROTO_SCTP:
		return f.state == sctpCookieWait || f.state == sctpCookieEchoed
	}
	return false
}

// closing reports whether a side of a TCP or SCTP connection has ended it.
func (f trackedFlow) closing() bool {
	switch {
	case f.protocol == unix.IPPROTO_TCP && f.status&statusOffload == 0:
		return f.state >= tcpFinWait && f.state <= tcpClose
	case f.protocol == unix.IPPROTO_SCTP:
		return f.state == sctpClosed || f.state >= sctpShutdownSent && f.state <= sctpShutdownAckSent
	}
	return false
}

// connecting reports whether the client of a TCP connection may wait for the
// first answer.
func (f trackedFlow) connecting() bool {
	return f.state == tcpSynSent || f.state == tcpSynRecv || f.state == tcpSynSent2
}

// String returns the flow in a form similar to `conntrack -L`.
func (f trackedFlow) String() string {
	return fmt.Sprintf("protocol %d zone %d src=%v dst=%v reply src=%v dst=%v",
		f.protocol, f.zone.id, f.original.src, f.original.dst, f.reply.src, f.reply.dst)
}

var errNoTuple = errors.New("flow without addresses")

// decodeFlow decodes the attributes of an IPCTNL_MSG_CT_NEW message, of which
// dumps consist. It ignores unknown attributes, and numbers of unexpected
// length, and does not keep b.
func decodeFlow(b []byte) (f trackedFlow, err error) {
	nfnetlink.EachAttr(b, f.setAttr)
	if !sameFamily(f.original.src, f.original.dst, f.reply.src, f.reply.dst) {
		return trackedFlow{}, errNoTuple
	}
	return f, nil
}

func sameFamily(addrs ...netip.AddrPort) bool {
	for _, a := range addrs {
		if !a.IsValid() || a.Addr().Is4() != addrs[0].Addr().Is4() {
			return false
		}
	}
	return true
}

func (f *trackedFlow) setAttr(kind uint16, data []byte) {
	switch kind {
	case ctaTupleOrig:
		f.setTuple(&f.original, zoneOriginal, data)
	case ctaTupleReply:
		f.setTuple(&f.reply, zoneReply, data)
	case ctaID:
		f.id = nfnetlink.Uint32(data)
	case ctaZone:
		f.zone = zone{nfnetlink.Uint16(data), zoneBoth}
	case ctaStatus:
		f.status = nfnetlink.Uint32(data)
	case ctaProtoInfo:
		f.state = stateOf(data)
	}
}

// stateOf decodes the state in CTA_PROTOINFO. It is 0 for protocols without
// states.
func stateOf(b []byte) uint8 {
	for _, protocol := range []uint16{ctaProtoInfoTCP, ctaProtoInfoSCTP} {
		if data := nfnetlink.Attr(nfnetlink.Attr(b, protocol), ctaState); data != nil {
			return nfnetlink.Uint8(data)
		}
	}
	return 0
}

// setTuple decodes CTA_TUPLE_ORIG or CTA_TUPLE_REPLY. A zone within a tuple
// applies to that direction only.
func (f *trackedFlow) setTuple(t *tuple, direction zoneDirection, b []byte) {
	var src, dst netip.Addr
	var srcPort, dstPort uint16
	nfnetlink.EachAttr(b, func(kind uint16, data []byte) {
		switch kind {
		case ctaTupleIP:
			nfnetlink.EachAttr(data, func(kind uint16, data []byte) {
				switch kind {
				case ctaIPv4Src, ctaIPv6Src:
					src, _ = netip.AddrFromSlice(data)
				case ctaIPv4Dst, ctaIPv6Dst:
					dst, _ = netip.AddrFromSlice(data)
				}
			})
		case ctaTupleProto:
			nfnetlink.EachAttr(data, func(kind uint16, data []byte) {
				switch kind {
				case ctaProtoNum:
					f.protocol = nfnetlink.Uint8(data)
				case ctaProtoSrcPort:
					srcPort = nfnetlink.Uint16(data)
				case ctaProtoDstPort:
					dstPort = nfnetlink.Uint16(data)
				}
			})
		case ctaTupleZone:
			f.zone = zone{nfnetlink.Uint16(data), direction}
		}
	})
	t.src, t.dst = netip.AddrPortFrom(src, srcPort), netip.AddrPortFrom(dst, dstPort)
}
