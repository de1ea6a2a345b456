package conntrack

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"strings"

	"golang.org/x/sys/unix"
)

// dumpFilter selects the flows that match all its fields. A zero field
// matches all flows. The destination is in the original tuple.
type dumpFilter struct {
	family   Family
	protocol uint8
	dst      netip.Addr
	dstPort  uint16
	// translated selects flows whose destination was translated.
	translated bool
}

func (f dumpFilter) matches(flow trackedFlow) bool {
	return (f.family == 0 || f.family == flow.family()) &&
		(f.protocol == 0 || f.protocol == flow.protocol) &&
		(!f.dst.IsValid() || f.dst == flow.original.dst.Addr()) &&
		(f.dstPort == 0 || f.dstPort == flow.original.dst.Port()) &&
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
	return b.String()
}

// ctaFilterOrigFlags is an attribute of CTA_FILTER (enum ctattr_filter). The
// bits in it select the fields of the original tuple, in host byte order.
// Their names are in a private header of the kernel
// (net/netfilter/nf_internals.h).
const (
	ctaFilterOrigFlags = 1

	filterIPDst    = 1 << 1
	filterProtoNum = 1 << 3
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
	return endMessage(f.appendTuple(b), start)
}

// appendFamilyRequest appends the request for a dump that is filtered by
// family only, for kernels that refuse the other filters.
func (f dumpFilter) appendFamilyRequest(b []byte, seq uint32) []byte {
	return endMessage(appendDumpHeader(b, seq, f.family), len(b))
}

func appendDumpHeader(b []byte, seq uint32, family Family) []byte {
	return appendMessage(b, header{Type: messageGet, Flags: unix.NLM_F_REQUEST | unix.NLM_F_DUMP, Seq: seq}, family)
}

// comparedFields returns the bits of the fields that the kernel has to
// compare. An IPv6 address is not among them: many kernels, for example
// 6.18.44, select the flows whose address differs
// (ctnetlink_filter_match_tuple negates ipv6_addr_cmp).
func (f dumpFilter) comparedFields() (flags uint32) {
	if f.family == 0 {
		return 0 // the kernel requires a family for CTA_FILTER
	}
	if f.dst.Is4() && f.family == IPv4 {
		flags |= filterIPDst
	}
	if f.protocol != 0 {
		flags |= filterProtoNum
	}
	if f.protocol != 0 && f.dstPort != 0 { // ports need a protocol
		flags |= filterDstPort
	}
	return flags
}

// appendTuple appends CTA_FILTER (Linux 5.8) and the original tuple that it
// refers to, with the fields that the kernel has to compare.
func (f dumpFilter) appendTuple(b []byte) []byte {
	flags := f.comparedFields()
	if flags == 0 {
		return b
	}
	b, filter := openNest(b, ctaFilter)
	b = appendAttr(b, ctaFilterOrigFlags, binary.NativeEndian.AppendUint32(nil, flags))
	b = closeNest(b, filter)

	b, original := openNest(b, ctaTupleOrig)
	if flags&filterIPDst != 0 {
		var ip int
		b, ip = openNest(b, ctaTupleIP)
		b = appendAddr(b, ctaIPv4Dst, ctaIPv6Dst, f.dst)
		b = closeNest(b, ip)
	}
	if flags&filterProtoNum != 0 {
		var proto int
		b, proto = openNest(b, ctaTupleProto)
		b = appendUint8(b, ctaProtoNum, f.protocol)
		if flags&filterDstPort != 0 {
			b = appendUint16(b, ctaProtoDstPort, f.dstPort)
		}
		b = closeNest(b, proto)
	}
	return closeNest(b, original)
}
