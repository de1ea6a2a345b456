package walk

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/nft"
)

// Packet is a hypothetical packet at a hook.
type Packet struct {
	// Source and Destination are those in the header. A source port of 0 is not
	// known.
	Source, Destination netip.AddrPort
	// ClientUnknown reports whether the address of the client is not known: the
	// source, or the destination of an answer. It has a route, though.
	ClientUnknown bool
	// Protocol is the number of the transport protocol.
	Protocol uint8
	// In and Out are the interfaces by which the packet arrives and leaves. The
	// zero Interface stands for none.
	In, Out Interface
	Mark    uint32
	// MarkUnknown reports whether the mark is not known.
	MarkUnknown bool
	// Priority is the priority, unless PriorityUnknown is true.
	Priority        uint32
	PriorityUnknown bool
	// Translated reports whether the destination of the connection was
	// translated.
	Translated bool
	// Answered reports whether the connection has an answer, and Reply whether
	// the packet is one.
	Answered, Reply bool
	// Midstream reports whether the packet is a later packet of a connection
	// that connection tracking does not know. It is new for connection
	// tracking, or invalid.
	Midstream, Invalid bool
	// Untracked reports whether a rule excluded the packet from connection
	// tracking.
	Untracked bool
}

// Interface is the name of an interface, or the reason why it is not known.
type Interface struct {
	Name    string
	Unknown error
}

// ErrNewInterface is the reason why the interface of a hypothetical pod is not
// known: the pod would get a new one. So it is none of those that rules name.
var ErrNewInterface = errors.New("the interface of a hypothetical pod is unknown")

// errNewIndex is ErrNewInterface for the number of the interface. A rule that
// compares a name can mean a part of it.
var errNewIndex = fmt.Errorf("%w", ErrNewInterface)

// forwarded reports whether the packet arrived and leaves by an interface.
func (p *Packet) forwarded() bool { return p.In != Interface{} && p.Out != Interface{} }

func (p *Packet) family() nft.Family { return nft.FamilyOf(p.Destination.Addr()) }

// span is consecutive bytes of a header that are known.
type span struct {
	offset uint32
	bytes  []byte
}

// spans returns the known spans of a header.
func (p *Packet) spans(base expr.PayloadBase) (spans []span) {
	const tcpFlags = 13
	dest := binary.BigEndian.AppendUint16(nil, p.Destination.Port())
	switch {
	case base == expr.PayloadBaseNetworkHeader && p.family() == nft.IPv4:
		return []span{{9, []byte{p.Protocol}}, p.addrs(12)}
	case base == expr.PayloadBaseNetworkHeader:
		return []span{p.addrs(8)}
	case base != expr.PayloadBaseTransportHeader:
		return nil
	case p.Source.Port() == 0:
		spans = []span{{2, dest}}
	default:
		spans = []span{{0, append(binary.BigEndian.AppendUint16(nil, p.Source.Port()), dest...)}}
	}
	if flags, ok := p.tcpFlags(); ok && p.Protocol == unix.IPPROTO_TCP {
		spans = append(spans, span{tcpFlags, []byte{flags}})
	}
	return spans
}

// addrs returns the known addresses, which follow each other in the headers
// from an offset.
func (p *Packet) addrs(offset uint32) span {
	source, destination := p.Source.Addr().AsSlice(), p.Destination.Addr().AsSlice()
	switch {
	case p.ClientUnknown && p.Reply:
		return span{offset, source}
	case p.ClientUnknown:
		return span{offset + uint32(len(source)), destination}
	}
	return span{offset, append(source, destination...)}
}

// header returns the value of a header field.
func (p *Packet) header(e *expr.Payload) value {
	for _, span := range p.spans(e.Base) {
		if end := span.offset + uint32(len(span.bytes)); e.Offset >= span.offset && e.Offset+e.Len <= end {
			return known(span.bytes[e.Offset-span.offset:][:e.Len])
		}
	}
	return unknown("bytes %d to %d of header %d are unknown", e.Offset, e.Offset+e.Len, e.Base)
}

// tcpFlags returns the flags of a packet of the client.
func (p *Packet) tcpFlags() (flags byte, known bool) {
	if p.Answered || p.Midstream {
		return nft.FlagACK, !p.Reply
	}
	return nft.FlagSYN, !p.Reply
}

// Status bits of connections (linux/netfilter/nf_conntrack_common.h).
const (
	ctStatusSeenReply = 1 << 1
	ctStatusDNAT      = 1 << 5
)

// tracked returns information about the connection.
func (p *Packet) tracked(key expr.CtKey) value {
	switch key {
	case expr.CtKeySTATE:
		return known(hostBytes(p.connState()))
	case expr.CtKeySTATUS:
		return known(hostBytes(p.connStatus()))
	case expr.CtKeyDIRECTION:
		if p.Reply {
			return known([]byte{1})
		}
		return known([]byte{0})
	}
	return unknown("ct key %d is unknown", key)
}

func (p *Packet) connState() uint32 {
	switch {
	case p.Untracked:
		return expr.CtStateBitUNTRACKED
	case p.Invalid:
		return expr.CtStateBitINVALID
	case p.Answered:
		return expr.CtStateBitESTABLISHED
	}
	return expr.CtStateBitNEW
}

// connStatus returns the status of the connection, without bits that no
// firewall asks for.
func (p *Packet) connStatus() (status uint32) {
	if p.Translated {
		status |= ctStatusDNAT
	}
	if p.Answered {
		status |= ctStatusSeenReply
	}
	return status
}

// metaValue returns information about a packet.
func (w *Walk) metaValue(p *Packet, key expr.MetaKey) value {
	switch key {
	case expr.MetaKeyL4PROTO:
		return known([]byte{p.Protocol})
	case expr.MetaKeyNFPROTO:
		return known([]byte{byte(p.family())})
	case expr.MetaKeyMARK:
		if p.MarkUnknown {
			return unknown("the mark is unknown")
		}
		return known(hostBytes(p.Mark))
	case expr.MetaKeyPRIORITY:
		if p.PriorityUnknown {
			return unknown("the priority is unknown")
		}
		return known(hostBytes(p.Priority))
	case expr.MetaKeyIIFNAME:
		return p.In.name()
	case expr.MetaKeyOIFNAME:
		return p.Out.name()
	case expr.MetaKeyIIF:
		return w.index(p.In)
	case expr.MetaKeyOIF:
		return w.index(p.Out)
	}
	return unknown("meta key %d is unknown", key)
}

// name returns the value of `meta iifname`.
func (i Interface) name() value {
	padded := make([]byte, unix.IFNAMSIZ)
	copy(padded, i.Name)
	return value{padded, i.Unknown}
}

// index returns the value of `meta iif`, 0 for no interface.
func (w *Walk) index(i Interface) value {
	if i.Unknown == ErrNewInterface {
		return value{unknown: errNewIndex}
	}
	if i.Name == "" || i.Unknown != nil {
		return value{hostBytes(0), i.Unknown}
	}
	index, err := w.host.InterfaceIndex(i.Name)
	return value{hostBytes(index), err}
}

// fib returns the type of an address, or the interface of the route to it.
func (w *Walk) fib(p *Packet, e *expr.Fib) value {
	addr := p.Destination.Addr()
	if e.FlagSADDR {
		addr = p.Source.Addr()
	}
	if e.ResultADDRTYPE && !e.FlagIIF && !e.FlagOIF {
		typ, err := w.host.RouteType(addr)
		return value{hostBytes(typ), err}
	}
	name, err := w.host.Interface(addr)
	switch {
	case err != nil:
		return value{unknown: err}
	case e.ResultADDRTYPE || e.FlagOIF || p.In.Unknown != nil && !e.FlagPRESENT:
		return unknown("fib expression %+v is unknown", *e)
	case p.In.Unknown != nil: // of a hypothetical host, which has a route
	case e.FlagIIF && name != p.In.Name:
		name = "" // no route by this interface, as far as the main route shows
	}
	switch {
	case e.FlagPRESENT && name == "":
		return known([]byte{0})
	case e.FlagPRESENT:
		return known([]byte{1})
	case e.ResultOIF:
		return w.index(Interface{Name: name})
	}
	return Interface{Name: name}.name()
}

func hostBytes(v uint32) []byte { return binary.NativeEndian.AppendUint32(nil, v) }
