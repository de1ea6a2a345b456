package nft

import (
	"encoding/binary"
	"net/netip"

	"golang.org/x/sys/unix"
)

// TraceEvent is a step of a traced packet.
type TraceEvent struct {
	// ID is the same for all events of a packet while it stays in memory. It is
	// derived from the address of the packet, and from the interface on which
	// the packet arrived: a bridge changes it.
	ID   uint32
	Type TraceType
	// Family and Table identify the table.
	Family Family
	Table  string
	// Chain is the chain of the rule, or the base chain of a policy.
	Chain string
	// Rule is the handle of the rule, 0 if the event has none.
	Rule uint64
	// Verdict is that of the rule, or the policy. It is `continue` for a rule
	// without a verdict.
	Verdict Verdict
	Mark    uint32
	// Packet is set in the first event of each base chain only.
	Packet *TracedPacket
}

// TraceType is the kind of a TraceEvent (enum nft_trace_types).
type TraceType uint32

// Kinds of events.
const (
	TracePolicy TraceType = unix.NFT_TRACETYPE_POLICY // the end of a base chain
	TraceReturn TraceType = unix.NFT_TRACETYPE_RETURN // the end of a chain, before the policy of a base chain
	TraceRule   TraceType = unix.NFT_TRACETYPE_RULE   // a rule that matches
)

// TracedPacket describes a packet when it entered a base chain.
type TracedPacket struct {
	Protocol uint8
	// Source and Destination have port 0 if the protocol has no ports.
	Source, Destination netip.AddrPort
	// In and Out are the numbers of the interfaces, 0 if there is none yet.
	In, Out uint32
}

// parseTraceEvent parses a message of the type NFT_MSG_TRACE.
func parseTraceEvent(msg []byte) TraceEvent {
	e := TraceEvent{Family: Family(msg[nlmsgHeaderLen])}
	var network, transport []byte
	var in, out uint32
	eachAttr(msg[nlmsgHeaderLen+nfgenmsgLen:], func(typ uint16, value []byte) {
		switch typ {
		case unix.NFTA_TRACE_ID:
			e.ID = be32(value)
		case unix.NFTA_TRACE_TYPE:
			e.Type = TraceType(be32(value))
		case unix.NFTA_TRACE_TABLE:
			e.Table = cString(value)
		case unix.NFTA_TRACE_CHAIN:
			e.Chain = cString(value)
		case unix.NFTA_TRACE_RULE_HANDLE:
			e.Rule = be64(value)
		case unix.NFTA_TRACE_VERDICT:
			e.Verdict = parseVerdictData(value).masked()
		case unix.NFTA_TRACE_POLICY:
			e.Verdict = Verdict{code: int32(be32(value))}.masked()
		case unix.NFTA_TRACE_IIF:
			in = be32(value)
		case unix.NFTA_TRACE_OIF:
			out = be32(value)
		case unix.NFTA_TRACE_MARK:
			e.Mark = be32(value)
		case unix.NFTA_TRACE_NETWORK_HEADER:
			network = value
		case unix.NFTA_TRACE_TRANSPORT_HEADER:
			transport = value
		}
	})
	if e.Type == TraceRule && e.Rule == 0 { // so does Linux 6.18 report the end of a chain
		e.Type = TraceReturn
	}
	if e.Packet = parseTracedPacket(network, transport); e.Packet != nil {
		e.Packet.In, e.Packet.Out = in, out
	}
	return e
}

// masked returns the verdict without the number of a queue or an error, which
// the kernel stores in its upper bits (NF_VERDICT_MASK).
func (v Verdict) masked() Verdict {
	if v.code >= 0 {
		v.code &= 0xff
	}
	return v
}

// parseTracedPacket returns nil if the headers are not those of an IP packet.
// Behind extension headers of IPv6, the protocol is that of the first of them.
func parseTracedPacket(network, transport []byte) *TracedPacket {
	p := &TracedPacket{}
	var source, destination netip.Addr
	switch {
	case len(network) >= 20 && network[0]>>4 == 4:
		p.Protocol = network[9]
		source, destination = netip.AddrFrom4([4]byte(network[12:])), netip.AddrFrom4([4]byte(network[16:]))
	case len(network) >= 40 && network[0]>>4 == 6:
		p.Protocol = network[6]
		source, destination = netip.AddrFrom16([16]byte(network[8:])), netip.AddrFrom16([16]byte(network[24:]))
	default:
		return nil
	}
	var from, to uint16
	if len(transport) >= 4 {
		from, to = binary.BigEndian.Uint16(transport), binary.BigEndian.Uint16(transport[2:])
	}
	p.Source, p.Destination = netip.AddrPortFrom(source, from), netip.AddrPortFrom(destination, to)
	return p
}
