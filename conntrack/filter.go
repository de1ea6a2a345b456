package conntrack

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"strings"

	"golang.org/x/sys/unix"
)

// TupleFilter selects flows by one of their tuples. What is zero matches everything.
type TupleFilter struct {
	Src, Dst         netip.Addr
	SrcPort, DstPort uint16
}

// Filter selects flows. What is zero matches everything, and everything else has to match.
type Filter struct {
	Family          Family
	Protocol        uint8
	Original, Reply TupleFilter

	// A flow matches if the bits that the mask selects are equal.
	Status, StatusMask uint32
	Mark, MarkMask     uint32

	// InZone selects the flows of Zone only.
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

// String names what the filter selects, for errors.
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

// Attributes of CTA_FILTER (enum ctattr_filter), and the bits in them that say which fields of a tuple count. The
// kernel takes the bits in host byte order and keeps their names to itself (net/netfilter/nf_internals.h).
const (
	ctaFilterOrigFlags  = 1
	ctaFilterReplyFlags = 2

	filterIPSrc    = 1 << 0
	filterIPDst    = 1 << 1
	filterProtoNum = 1 << 3
	filterSrcPort  = 1 << 4
	filterDstPort  = 1 << 5
)

// appendRequest appends the request for a dump of the flows that f selects, or of more where the kernel cannot filter:
// Match has to be applied to what comes. Kernels pass over the attributes that they do not know.
func (f Filter) appendRequest(b []byte, seq uint32) []byte {
	start := len(b)
	b = appendDumpHeader(b, seq, f.Family)
	if f.StatusMask != 0 { // 6.1 filters by it, 5.10 does not
		b = appendUint32(b, ctaStatus, f.Status&f.StatusMask)
		b = appendUint32(b, ctaStatusMask, f.StatusMask)
	}
	if f.MarkMask != 0 {
		b = appendUint32(b, ctaMark, f.Mark&f.MarkMask)
		b = appendUint32(b, ctaMarkMask, f.MarkMask)
	}
	if f.InZone { // 6.12 filters by it, 6.1 does not
		b = appendUint16(b, ctaZone, f.Zone)
	}
	return endMessage(f.appendTuples(b), start)
}

// appendFamilyRequest appends the request for a dump that only the family narrows, for kernels that refuse the rest.
func (f Filter) appendFamilyRequest(b []byte, seq uint32) []byte {
	return endMessage(appendDumpHeader(b, seq, f.Family), len(b))
}

func appendDumpHeader(b []byte, seq uint32, family Family) []byte {
	return appendMessage(b, header{Type: messageGet, Flags: unix.NLM_F_REQUEST | unix.NLM_F_DUMP, Seq: seq}, family)
}

// appendTuples appends CTA_FILTER (Linux 5.8) and the tuples that it speaks of. The kernel wants a family.
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

// flags says which fields the kernel is to compare. IPv6 addresses are not among them: many kernels, 6.18.44 among them,
// take flows whose address is *not* the given one (ctnetlink_filter_match_tuple negates ipv6_addr_cmp).
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

// appendFields appends the fields of a tuple that flags names.
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
