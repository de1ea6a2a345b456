package conntrack

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/nftproxy/nftproxy/nft/nfnetlink"
)

// Selection selects connections. A zero field selects all.
type Selection struct {
	Family   Family
	Protocol uint8
	// Addr and Port are the frontend, or, with Replies, the endpoint, which
	// replies come from.
	Addr    netip.Addr
	Port    uint16
	Replies bool
	// Translated selects connections whose destination was translated.
	Translated bool
	// Answer selects connections by whether a packet of the endpoint was seen.
	Answer Answer
	// Limit ends the list once the kernel has sent this many connections, as
	// good as random ones. They are the same ones again as long as they exist:
	// the hash of a connection decides about its place.
	Limit int
}

// Answer selects connections by their answers.
type Answer uint8

// Answers of a Selection.
const (
	AnyAnswer Answer = iota
	Unanswered
	Answered
)

func (a Answer) matches(flow trackedFlow) bool {
	return a == AnyAnswer || (a == Answered) == flow.answered()
}

func (s Selection) matches(flow trackedFlow) bool {
	at := flow.original.dst
	if s.Replies {
		at = flow.reply.src
	}
	return (s.Family == 0 || s.Family == flow.family()) &&
		(s.Protocol == 0 || s.Protocol == flow.protocol) &&
		(!s.Addr.IsValid() || s.Addr == at.Addr()) &&
		(s.Port == 0 || s.Port == at.Port()) &&
		(!s.Translated || flow.translated()) &&
		s.Answer.matches(flow)
}

// String describes the selected flows, for errors.
func (s Selection) String() string {
	var b strings.Builder
	add := func(selects bool, format string, values ...any) {
		if selects {
			fmt.Fprintf(&b, format, values...)
		}
	}
	at := " to"
	if s.Replies {
		at = " with replies from"
	}
	add(s.Family != 0, "%s ", s.Family.Name())
	add(s.Protocol != 0, "protocol %d ", s.Protocol)
	add(s.Translated, "translated ")
	add(s.Answer == Unanswered, "unanswered ")
	add(s.Answer == Answered, "answered ")
	b.WriteString("flows")
	add(s.Addr.IsValid(), "%s %v", at, s.Addr)
	add(s.Port != 0, "%s port %d", at, s.Port)
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

// filterTuple is the tuple that a filter compares: one of its addresses, with
// its port.
type filterTuple struct {
	kind, flags      uint16 // attributes of the tuple and of its bits
	ipv4, ipv6, port uint16 // attributes of the address and the port
	ipBit, portBit   uint32
}

var (
	frontendTuple = filterTuple{
		ctaTupleOrig, ctaFilterOrigFlags, ctaIPv4Dst, ctaIPv6Dst, ctaProtoDstPort, filterIPDst, filterDstPort,
	}
	endpointTuple = filterTuple{
		ctaTupleReply, ctaFilterReplyFlags, ctaIPv4Src, ctaIPv6Src, ctaProtoSrcPort, filterIPSrc, filterSrcPort,
	}
)

// writeTo writes the attributes of a request for a dump of the selected flows:
// a status, and CTA_FILTER (Linux 5.8) with the tuple that it refers to. The
// kernel ignores attributes that it does not know and then sends more flows, so
// the caller must apply matches to the result.
func (s Selection) writeTo(w *nfnetlink.Writer) {
	if value, mask := s.status(); mask != 0 { // Linux 5.10 ignores it, 6.1 does not
		w.Uint32(ctaStatus, value)
		w.Uint32(ctaStatusMask, mask)
	}
	t := frontendTuple
	if s.Replies {
		t = endpointTuple
	}
	if bits := s.comparedFields(t); bits != 0 {
		filter := w.Nest(ctaFilter)
		w.Bytes(t.flags, binary.NativeEndian.AppendUint32(nil, bits))
		w.Unnest(filter)
		s.writeTuple(w, t, bits)
	}
}

// status returns the bits of the status that the kernel has to compare, and
// their values.
func (s Selection) status() (value, mask uint32) {
	if s.Translated {
		value, mask = statusTranslated, statusTranslated
	}
	if s.Answer != AnyAnswer {
		mask |= statusSeenReply
	}
	if s.Answer == Answered {
		value |= statusSeenReply
	}
	return value, mask
}

// comparedFields returns the bits of the fields that the kernel has to
// compare. An IPv6 address is not among them: many kernels, for example
// 6.18.44, select the flows whose address differs
// (ctnetlink_filter_match_tuple negates ipv6_addr_cmp).
func (s Selection) comparedFields(t filterTuple) (bits uint32) {
	if s.Family == 0 {
		return 0 // the kernel requires a family for CTA_FILTER
	}
	if s.Addr.Is4() && s.Family == IPv4 {
		bits |= t.ipBit
	}
	if s.Protocol != 0 {
		bits |= filterProtoNum
	}
	if s.Protocol != 0 && s.Port != 0 { // ports need a protocol
		bits |= t.portBit
	}
	return bits
}

// writeTuple writes a tuple with the fields that the kernel has to compare.
func (s Selection) writeTuple(w *nfnetlink.Writer, t filterTuple, bits uint32) {
	tuple := w.Nest(t.kind)
	if bits&t.ipBit != 0 {
		ip := w.Nest(ctaTupleIP)
		w.Addr(t.ipv4, t.ipv6, s.Addr)
		w.Unnest(ip)
	}
	if bits&filterProtoNum != 0 {
		proto := w.Nest(ctaTupleProto)
		w.Uint8(ctaProtoNum, s.Protocol)
		if bits&t.portBit != 0 {
			w.Uint16(t.port, s.Port)
		}
		w.Unnest(proto)
	}
	w.Unnest(tuple)
}

// selections are the dumps that list some flows of one family, at most
// maxNarrowDumps. If these are too many, they become wider: one for each
// protocol and port, or else for each protocol. IPv6 starts with one for each
// port, because the kernel cannot filter by IPv6 address.
type selections struct {
	list  []Selection
	width int // 1 without addresses, 2 without ports, too
}

// maxNarrowDumps is the largest result of MaxDumps.
const maxNarrowDumps = 7

func (s *selections) add(one Selection) {
	if s.width > 0 || one.Family == IPv6 {
		one.Addr = netip.Addr{}
	}
	if s.width > 1 {
		one.Port = 0
	}
	if !slices.Contains(s.list, one) {
		s.list = append(s.list, one)
		s.limit(maxNarrowDumps)
	}
}

// limit makes the selections wider until there are at most n, or one for each
// protocol.
func (s *selections) limit(n int) {
	for len(s.list) > n && s.width < 2 {
		s.merge(selections{width: s.width + 1})
	}
}

func (s *selections) merge(o selections) {
	all := slices.Concat(s.list, o.list)
	*s = selections{width: max(s.width, o.width)}
	for _, one := range all {
		s.add(one)
	}
}

// sorted returns at most n selections, or one for each protocol.
func (s selections) sorted(n int) []Selection {
	s.limit(n)
	return slices.SortedFunc(slices.Values(s.list), func(a, b Selection) int {
		return cmp.Or(cmp.Compare(a.Protocol, b.Protocol), a.Addr.Compare(b.Addr), cmp.Compare(a.Port, b.Port))
	})
}

// plan returns the dumps that list all flows to the frontends and removed
// endpoints of a check, for a table with this number of entries: as many narrow
// ones as cost less than they save. Attempts without an answer are few, and the
// kernel sends no others (Linux 5.10 does), so a second dump of them saves
// nothing.
func plan(c *check, entries int) (dumps []Selection) {
	limit := MaxDumps(entries)
	for _, family := range []Family{IPv4, IPv6} {
		dumps = slices.Concat(dumps, c.changed.of(family).sorted(limit), c.attempts.of(family).sorted(1),
			c.removed(family).sorted(limit))
	}
	return dumps
}

// MaxDumps returns how many lists of the connections of one address cost no
// more than one list of all connections, in a table with this number of
// entries.
//
// The kernel walks its whole hash table for each dump. A filter only saves
// the messages for the flows that it excludes. Measured on Linux 6.18 with
// 262,144 buckets (the default from 4 GiB of memory on), a walk takes 8.6 ms
// plus 0.25 µs per entry, and a message takes 1.7 µs in the kernel and here.
// So one more walk pays if it saves the messages for about 5,000 flows plus
// a seventh of all entries. It cannot save more than all entries.
func MaxDumps(entries int) int {
	return 1 + entries/(5000+entries/7)
}
