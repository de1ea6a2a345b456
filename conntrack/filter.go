package conntrack

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/nft/nfnetlink"
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
	// translated selects flows whose destination was translated, and lost
	// those of which lost returns true.
	translated, lost bool
}

func (f dumpFilter) matches(flow trackedFlow) bool {
	return (f.family == 0 || f.family == flow.family()) &&
		(f.protocol == 0 || f.protocol == flow.protocol) &&
		(!f.dst.IsValid() || f.dst == flow.original.dst.Addr()) &&
		(f.dstPort == 0 || f.dstPort == flow.original.dst.Port()) &&
		(!f.src.IsValid() || f.src == flow.reply.src.Addr()) &&
		(f.srcPort == 0 || f.srcPort == flow.reply.src.Port()) &&
		(!f.translated || flow.translated()) &&
		(!f.lost || flow.lost())
}

// String describes the selected flows, for errors.
func (f dumpFilter) String() string {
	var b strings.Builder
	add := func(selects bool, format string, value any) {
		if selects {
			fmt.Fprintf(&b, format, value)
		}
	}
	add(f.family != 0, "%s ", f.family.Name())
	add(f.protocol != 0, "protocol %d ", f.protocol)
	add(f.translated, "%s ", "translated")
	add(f.lost, "%s ", "lost")
	b.WriteString("flows")
	add(f.dst.IsValid(), " to %v", f.dst)
	add(f.dstPort != 0, " to port %d", f.dstPort)
	add(f.src.IsValid(), " with replies from %v", f.src)
	add(f.srcPort != 0, " with replies from port %d", f.srcPort)
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

// writeTo writes the request for a dump of the flows that f selects. The kernel
// ignores attributes that it does not know and then sends more flows, so the
// caller must apply matches to the result.
func (f dumpFilter) writeTo(w *nfnetlink.Writer) {
	at := w.Begin(messageGet, unix.NLM_F_DUMP, f.family, 0)
	if f.translated {
		w.Uint32(ctaStatus, statusTranslated) // Linux 5.10 ignores it, 6.1 does not
	}
	if f.lost {
		w.Uint32(ctaStatus, 0)
		w.Uint32(ctaStatusMask, statusSeenReply|statusTranslated)
	}
	f.writeTuples(w)
	w.End(at)
}

// filterTuple is the part of a filter that concerns one tuple: one of its
// addresses, with its port.
type filterTuple struct {
	kind, flags      uint16 // attributes of the tuple and of its bits
	ipv4, ipv6, port uint16 // attributes of the address and the port
	ipBit, portBit   uint32
}

// writeTuples writes CTA_FILTER (Linux 5.8) and the tuples that it refers to,
// with the fields that the kernel has to compare.
func (f dumpFilter) writeTuples(w *nfnetlink.Writer) {
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
		return
	}
	filter := w.Nest(ctaFilter)
	w.Bytes(original.flags, binary.NativeEndian.AppendUint32(nil, originalBits))
	w.Bytes(reply.flags, binary.NativeEndian.AppendUint32(nil, replyBits))
	w.Unnest(filter)
	f.writeTuple(w, original, originalBits, f.dst, f.dstPort)
	f.writeTuple(w, reply, replyBits, f.src, f.srcPort)
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

// writeTuple writes a tuple with the fields that the kernel has to compare.
func (f dumpFilter) writeTuple(w *nfnetlink.Writer, t filterTuple, bits uint32, addr netip.Addr, port uint16) {
	if bits == 0 {
		return
	}
	tuple := w.Nest(t.kind)
	if bits&t.ipBit != 0 {
		ip := w.Nest(ctaTupleIP)
		w.Addr(t.ipv4, t.ipv6, addr)
		w.Unnest(ip)
	}
	if bits&filterProtoNum != 0 {
		proto := w.Nest(ctaTupleProto)
		w.Uint8(ctaProtoNum, f.protocol)
		if bits&t.portBit != 0 {
			w.Uint16(t.port, port)
		}
		w.Unnest(proto)
	}
	w.Unnest(tuple)
}
