package notify

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"time"
	"unsafe"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/nft/nfnetlink"
)

// Tracer receives a TraceEvent for each rule that traced packets of a network
// namespace match (see nft.SetTrace). It receives the events of all tables.
//
// Unlike a Monitor it does not make transactions slower.
type Tracer struct{ socket *nfnetlink.Socket }

// OpenTracer opens a Tracer in the network namespace of the calling thread. It
// requires CAP_NET_ADMIN there.
func OpenTracer() (*Tracer, error) {
	s, err := open()
	if err != nil {
		return nil, err
	}
	err = unix.SetsockoptInt(s.FD, unix.SOL_NETLINK, unix.NETLINK_ADD_MEMBERSHIP, unix.NFNLGRP_NFTRACE)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("listen to traces of packets: %w", err), s.Close())
	}
	return &Tracer{s}, nil
}

// Close closes the Tracer.
func (t *Tracer) Close() error { return t.socket.Close() }

// Receive waits up to a duration for events and returns them, in the order in
// which the kernel sent them. It returns none after the wait. Lost returns the
// number of events that are missing.
func (t *Tracer) Receive(wait time.Duration) (events []TraceEvent, err error) {
	data, err := t.socket.Wait(wait)
	if err != nil {
		return nil, fmt.Errorf("receive traces of packets: %w", err)
	}
	for msg := range nfnetlink.Messages(data) {
		if len(msg) >= nfnetlink.HeaderLen && msg.Type() == messageType(unix.NFT_MSG_TRACE) {
			events = append(events, parseTraceEvent(msg))
		}
	}
	return events, nil
}

// Lost returns the number of messages that the kernel dropped because the
// receive buffer was full.
func (t *Tracer) Lost() (int, error) {
	var info [9]uint32 // SK_MEMINFO_VARS of linux/sock_diag.h
	const drops = 8
	size := uint32(unsafe.Sizeof(info))
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(t.socket.FD), unix.SOL_SOCKET, unix.SO_MEMINFO,
		uintptr(unsafe.Pointer(&info)), uintptr(unsafe.Pointer(&size)), 0)
	if errno != 0 {
		return 0, os.NewSyscallError("getsockopt SO_MEMINFO", errno)
	}
	return int(info[drops]), nil
}

// TraceEvent is a step of a traced packet.
type TraceEvent struct {
	// ID is the same for all events of a packet while it stays in memory. It is
	// derived from the address of the packet, and from the interface on which
	// the packet arrived: a bridge changes it.
	ID   uint32
	Type TraceType
	// Family and Table identify the table.
	Family nft.Family
	Table  string
	// Chain is the chain of the rule, or the base chain of a policy.
	Chain string
	// Rule is the handle of the rule, 0 if the event has none.
	Rule uint64
	// Verdict is the verdict of the rule, or the policy. It is `continue` for a
	// rule without a verdict.
	Verdict nft.Verdict
	// Mark is the mark of the packet.
	Mark uint32
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
func parseTraceEvent(msg nfnetlink.Message) TraceEvent {
	attr := func(typ uint16) []byte { return nfnetlink.Attr(msg.Attributes(), typ) }
	number := func(typ uint16) uint32 { return nfnetlink.Uint32(attr(typ)) }
	text := func(typ uint16) string { return unix.ByteSliceToString(attr(typ)) }
	e := TraceEvent{
		ID: number(unix.NFTA_TRACE_ID), Type: TraceType(number(unix.NFTA_TRACE_TYPE)),
		Family: nft.Family(msg[nfnetlink.MessageHeaderLen]), Table: text(unix.NFTA_TRACE_TABLE),
		Chain:   text(unix.NFTA_TRACE_CHAIN),
		Rule:    nfnetlink.Uint64(attr(unix.NFTA_TRACE_RULE_HANDLE)),
		Verdict: parseVerdict(attr(unix.NFTA_TRACE_VERDICT)), Mark: number(unix.NFTA_TRACE_MARK),
		Packet: parseTracedPacket(attr(unix.NFTA_TRACE_NETWORK_HEADER), attr(unix.NFTA_TRACE_TRANSPORT_HEADER)),
	}
	if policy := attr(unix.NFTA_TRACE_POLICY); policy != nil {
		e.Verdict = verdict(policy, "")
	}
	if e.Type == TraceRule && e.Rule == 0 { // so does Linux 6.18 report the end of a chain
		e.Type = TraceReturn
	}
	if e.Packet != nil {
		e.Packet.In, e.Packet.Out = number(unix.NFTA_TRACE_IIF), number(unix.NFTA_TRACE_OIF)
	}
	return e
}

func parseVerdict(attributes []byte) nft.Verdict {
	return verdict(nfnetlink.Attr(attributes, unix.NFTA_VERDICT_CODE),
		unix.ByteSliceToString(nfnetlink.Attr(attributes, unix.NFTA_VERDICT_CHAIN)))
}

func verdict(code []byte, chain string) nft.Verdict {
	return nft.VerdictOf(&expr.Verdict{Kind: expr.VerdictKind(int32(nfnetlink.Uint32(code))), Chain: chain})
}

// parseTracedPacket returns nil if the headers are not of an IP packet.
// Behind extension headers of IPv6, the protocol is the number of the first
// one.
func parseTracedPacket(network, transport []byte) *TracedPacket {
	p := &TracedPacket{}
	var addrs []byte
	switch {
	case len(network) >= 20 && network[0]>>4 == 4:
		p.Protocol, addrs = network[9], network[12:20]
	case len(network) >= 40 && network[0]>>4 == 6:
		p.Protocol, addrs = network[6], network[8:40]
	default:
		return nil
	}
	ports := make([]byte, 4)
	if len(transport) >= len(ports) {
		ports = transport
	}
	endpoint := func(addr, port []byte) netip.AddrPort {
		ip, _ := netip.AddrFromSlice(addr)
		return netip.AddrPortFrom(ip, binary.BigEndian.Uint16(port))
	}
	half := len(addrs) / 2
	p.Source, p.Destination = endpoint(addrs[:half], ports), endpoint(addrs[half:], ports[2:])
	return p
}
