package conntrack

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"strings"

	"golang.org/x/sys/unix"
)

// dumpFilter selects the flows that match all its fields. A zero field
// matches all flows. dst and dstPort are the destination of the original tuple,
// src and srcPort the source of the reply tuple.
type dumpFilter struct {
	family   Family
	protocol uint8
	dst, src netip.Addr
	dstPort  uint16
	srcPort  uint16
	// translated selects flows whose destination was translated.
	translated bool
}

func (f dumpFilter) matches(flow trackedFlow) bool {
	return (f.family == 0 || f.family == flow.family()) &&
		(f.protocol == 0 || f.protocol == flow.protocol) &&
		(!f.dst.IsValid() || f.dst == flow.original.dst.Addr()) &&
		(f.dstPort == 0 || f.dstPort == flow.original.dst.Port()) &&
		(!f.src.IsValid() || f.src == flow.reply.src.Addr()) &&
		(f.srcPort == 0 || f.srcPort == flow.reply.src.Port()) &&
		(!f.translated || flow.translated())
}

// String describes the selected flows, for errors.
func (f dumpFilter) String() string {
	var b strings.Builder
	if f.family != 0 {
		fmt.Fprintf(&b, "%v ", f.family)
	}
	if f.protocol != 0 {
		fmt.Fprintf(&b, "protocol %d ", f.protocol)
	}
	if f.translated {
		b.WriteString("translated ")
	}
	b.WriteString("flows")
	if f.dst.IsValid() {
		fmt.Fprintf(&b, " to %v", f.dst)
	}
	if f.dstPort != 0 {
		fmt.Fprintf(&b, " to port %d", f.dstPort)
	}
	if f.src.IsValid() {
		fmt.Fprintf(&b, " with replies from %v", f.src)
	}
	if f.srcPort != 0 {
		fmt.Fprintf(&b, " with replies from port %d", f.srcPort)
	}
	return b.String()
}

// Attributes of CTA_FILTER (enum ctattr_filter). The bits in them select the
// fields of a tuple, in host byte order. Their names are in a private header of
// the kernel (net/netfilter/nf_internals.h).
const (
	ctaFilterOrigFlags  = 1
	ctaFilterReplyFlags = 2

	filterIPSrc    = 1 << 0
	filterIPDst    = 1 << 1
	filterProtoNum = 1 << 3
	filterSrcPort  = 1 << 4
	filterDstPort  = 1 << 5
)

// appendRequest appends the request for a dump of the flows that f selects.
// The kernel ignores attributes that it does not know and then sends more
// flows, so the caller must apply matches to the result.
func (f dumpFilter) appendRequest(b []byte, seq uint32) []byte {
	start := len(b)
	b = appendDumpHeader(b, seq, f.family)
	if f.translated {
		b = appendUint32(b, ctaStatus, statusTranslated) // Linux 5.10 ignores it, 6.1 does not
	}
	return endMessage(f.appendTuples(b), start)
}

// appendFamilyRequest appends the request for a dump that is filtered by
// family only, for kernels that refuse the other filters.
func (f dumpFilter) appendFamilyRequest(b []byte, seq uint32) []byte {
	return endMessage(appendDumpHeader(b, seq, f.family), len(b))
}

func appendDumpHeader(b []byte, seq uint32, family Family) []byte {
	return appendMessage(b, header{Type: messageGet, Flags: unix.NLM_F_REQUEST | unix.NLM_F_DUMP, Seq: seq}, family)
}

// filterTuple is the part of a filter that concerns one tuple: one of its
// addresses, with its port.
type filterTuple struct {
	kind, flags      uint16 // attributes of the tuple and of its bits
	ipv4, ipv6, port uint16 // attributes of the address and the port
	ipBit, portBit   uint32
}

// appendTuples appends CTA_FILTER (Linux 5.8) and the tuples that it refers to,
// with the fields that the kernel has to compare.
func (f dumpFilter) appendTuples(b []byte) []byte {
	original := filterTuple{
		ctaTupleOrig, ctaFilterOrigFlags, ctaIPv4Dst, ctaIPv6Dst, ctaProtoDstPort, filterIPDst, filterDstPort,
	}
	reply := filterTuple{
		ctaTupleReply, ctaFilterReplyFlags, ctaIPv4Src, ctaIPv6Src, ctaProtoSrcPort, filterIPSrc, filterSrcPort,
	}
	originalBits := f.comparedFields(original, f.dst, f.dstPort)
	replyBits := uint32(0)
	if f.src.IsValid() || f.srcPort != 0 {
		replyBits = f.comparedFields(reply, f.src, f.srcPort)
	}
	if originalBits|replyBits == 0 {
		return b
	}
	b, filter := openNest(b, ctaFilter)
	b = appendAttr(b, original.flags, binary.NativeEndian.AppendUint32(nil, originalBits))
	b = appendAttr(b, reply.flags, binary.NativeEndian.AppendUint32(nil, replyBits))
	b = closeNest(b, filter)
	b = f.appendTuple(b, original, originalBits, f.dst, f.dstPort)
	return f.appendTuple(b, reply, replyBits, f.src, f.srcPort)
}

// comparedFields returns the bits of the fields that the kernel has to
// compare. An IPv6 address is not among them: many kernels, for example
// 6.18.44, select the flows whose address differs
// (ctnetlink_filter_match_tuple negates ipv6_addr_cmp).
func (f dumpFilter) comparedFields(t filterTuple, addr netip.Addr, port uint16) (bits uint32) {
	if f.family == 0 {
		return 0 // the kernel requires a family for CTA_FILTER
	}
	if addr.Is4() && f.family == IPv4 {
		bits |= t.ipBit
	}
	if f.protocol != 0 {
		bits |= filterProtoNum
	}
	if f.protocol != 0 && port != 0 { // ports need a protocol
		bits |= t.portBit
	}
	return bits
}

// appendTuple appends a tuple with the fields that the kernel has to compare.
func (f dumpFilter) appendTuple(b []byte, t filterTuple, bits uint32, addr netip.Addr, port uint16) []byte {
	if bits == 0 {
		return b
	}
	b, tuple := openNest(b, t.kind)
	if bits&t.ipBit != 0 {
		var ip int
		b, ip = openNest(b, ctaTupleIP)
		b = appendAddr(b, t.ipv4, t.ipv6, addr)
		b = closeNest(b, ip)
	}
	if bits&filterProtoNum != 0 {
		var proto int
		b, proto = openNest(b, ctaTupleProto)
		b = appendUint8(b, ctaProtoNum, f.protocol)
		if bits&t.portBit != 0 {
			b = appendUint16(b, t.port, port)
		}
		b = closeNest(b, proto)
	}
	return closeNest(b, tuple)
}
