package conntrack

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"strings"

	"golang.org/x/sys/unix"
)

// TupleFilter selects flows by one of their tuples. Zero fields match all
// flows.
type TupleFilter struct {
	Src, Dst         netip.Addr
	SrcPort, DstPort uint16
}

// Filter selects the flows that match all its fields. Zero fields match all
// flows.
type Filter struct {
	Family          Family
	Protocol        uint8
	Original, Reply TupleFilter

	// A flow matches if its bits in the mask are equal to these.
	Status, StatusMask uint32
	Mark, MarkMask     uint32

	// InZone selects the flows in Zone only.
	InZone bool
	Zone   uint16
}

// Match reports whether the filter selects the flow.
func (f Filter) Match(flow Flow) bool {
	return (f.Family == 0 || f.Family == flow.Family()) &&
		(f.Protocol == 0 || f.Protocol == flow.Protocol) &&
		f.Original.match(flow.Original) &&
		f.Reply.match(flow.Reply) &&
		flow.Status&f.StatusMask == f.Status&f.StatusMask &&
		flow.Mark&f.MarkMask == f.Mark&f.MarkMask &&
		(!f.InZone || f.Zone == flow.Zone.ID)
}

func (f TupleFilter) match(t Tuple) bool {
	return (!f.Src.IsValid() || f.Src == t.Src.Addr()) &&
		(!f.Dst.IsValid() || f.Dst == t.Dst.Addr()) &&
		(f.SrcPort == 0 || f.SrcPort == t.Src.Port()) &&
		(f.DstPort == 0 || f.DstPort == t.Dst.Port())
}

// String describes the selected flows, for errors.
func (f Filter) String() string {
	var b strings.Builder
	if f.Family != 0 {
		fmt.Fprintf(&b, "%v ", f.Family)
	}
	if f.Protocol != 0 {
		fmt.Fprintf(&b, "protocol %d ", f.Protocol)
	}
	b.WriteString("flows")
	if f.Original.Dst.IsValid() {
		fmt.Fprintf(&b, " to %v", f.Original.Dst)
	}
	if f.Original.DstPort != 0 {
		fmt.Fprintf(&b, " to port %d", f.Original.DstPort)
	}
	return b.String()
}

// Attributes of CTA_FILTER (enum ctattr_filter), and the bits in them that
// select the fields of a tuple. The bits are in host byte order. Their names
// are in a private header of the kernel (net/netfilter/nf_internals.h).
const (
	ctaFilterOrigFlags  = 1
	ctaFilterReplyFlags = 2

	filterIPSrc    = 1 << 0
	filterIPDst    = 1 << 1
	filterProtoNum = 1 << 3
	filterSrcPort  = 1 << 4
	filterDstPort  = 1 << 5
)

// appendRequest appends the request for a dump of the flows that f selects. The
// kernel ignores attributes that it does not know and then sends more flows, so
// the caller must apply Match to the result.
func (f Filter) appendRequest(b []byte, seq uint32) []byte {
	start := len(b)
	b = appendDumpHeader(b, seq, f.Family)
	if f.StatusMask != 0 { // used by 6.1, ignored by 5.10
		b = appendUint32(b, ctaStatus, f.Status&f.StatusMask)
		b = appendUint32(b, ctaStatusMask, f.StatusMask)
	}
	if f.MarkMask != 0 {
		b = appendUint32(b, ctaMark, f.Mark&f.MarkMask)
		b = appendUint32(b, ctaMarkMask, f.MarkMask)
	}
	if f.InZone { // used by 6.12, ignored by 6.1
		b = appendUint16(b, ctaZone, f.Zone)
	}
	return endMessage(f.appendTuples(b), start)
}

// appendFamilyRequest appends the request for a dump that is filtered by family
// only, for kernels that refuse the other filters.
func (f Filter) appendFamilyRequest(b []byte, seq uint32) []byte {
	return endMessage(appendDumpHeader(b, seq, f.Family), len(b))
}

func appendDumpHeader(b []byte, seq uint32, family Family) []byte {
	return appendMessage(b, header{Type: messageGet, Flags: unix.NLM_F_REQUEST | unix.NLM_F_DUMP, Seq: seq}, family)
}

// appendTuples appends CTA_FILTER (Linux 5.8) and the tuples that it refers to.
// The kernel requires a family for it.
func (f Filter) appendTuples(b []byte) []byte {
	if f.Family == 0 {
		return b
	}
	original := f.Original.flags(f.Family, f.Protocol)
	reply := f.Reply.flags(f.Family, 0) // the protocol is the same in both
	if f.Reply.SrcPort != 0 || f.Reply.DstPort != 0 {
		reply = f.Reply.flags(f.Family, f.Protocol)
	}
	if original == 0 && reply == 0 {
		return b
	}
	b, nest := openNest(b, ctaFilter)
	b = appendFlags(b, ctaFilterOrigFlags, original)
	b = appendFlags(b, ctaFilterReplyFlags, reply)
	b = closeNest(b, nest)
	b = f.Original.appendFields(b, ctaTupleOrig, f.Protocol, original)
	return f.Reply.appendFields(b, ctaTupleReply, f.Protocol, reply)
}

// flags returns the bits of the fields that the kernel has to compare. IPv6
// addresses are not among them: many kernels, for example 6.18.44, select the
// flows whose address differs (ctnetlink_filter_match_tuple negates
// ipv6_addr_cmp).
func (f TupleFilter) flags(family Family, protocol uint8) (flags uint32) {
	if f.Src.Is4() && family == IPv4 {
		flags |= filterIPSrc
	}
	if f.Dst.Is4() && family == IPv4 {
		flags |= filterIPDst
	}
	if protocol == 0 { // ports need a protocol
		return flags
	}
	flags |= filterProtoNum
	if f.SrcPort != 0 {
		flags |= filterSrcPort
	}
	if f.DstPort != 0 {
		flags |= filterDstPort
	}
	return flags
}

func appendFlags(b []byte, kind uint16, flags uint32) []byte {
	if flags == 0 {
		return b
	}
	return appendAttr(b, kind, binary.NativeEndian.AppendUint32(nil, flags))
}

// appendFields appends the fields of a tuple that flags selects.
func (f TupleFilter) appendFields(b []byte, kind uint16, protocol uint8, flags uint32) []byte {
	if flags == 0 {
		return b
	}
	b, tuple := openNest(b, kind)
	if flags&(filterIPSrc|filterIPDst) != 0 {
		var ip int
		b, ip = openNest(b, ctaTupleIP)
		if flags&filterIPSrc != 0 {
			b = appendAddr(b, ctaIPv4Src, ctaIPv6Src, f.Src)
		}
		if flags&filterIPDst != 0 {
			b = appendAddr(b, ctaIPv4Dst, ctaIPv6Dst, f.Dst)
		}
		b = closeNest(b, ip)
	}
	if flags&filterProtoNum != 0 {
		var proto int
		b, proto = openNest(b, ctaTupleProto)
		b = appendUint8(b, ctaProtoNum, protocol)
		if flags&filterSrcPort != 0 {
			b = appendUint16(b, ctaProtoSrcPort, f.SrcPort)
		}
		if flags&filterDstPort != 0 {
			b = appendUint16(b, ctaProtoDstPort, f.DstPort)
		}
		b = closeNest(b, proto)
	}
	return closeNest(b, tuple)
}
