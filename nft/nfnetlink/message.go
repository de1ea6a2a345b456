package nfnetlink

import (
	"encoding/binary"
	"fmt"
	"iter"
	"math"
	"net/netip"

	"golang.org/x/sys/unix"
)

// Lengths of the header of a message (struct nlmsghdr), and of this header with
// the header of nfnetlink (struct nfgenmsg).
const (
	MessageHeaderLen = unix.SizeofNlMsghdr
	HeaderLen        = MessageHeaderLen + 4
)

// Offsets of the fields of the header of a message.
const (
	lengthAt = 0
	TypeAt   = 4
	FlagsAt  = 6
	seqAt    = 8
	portAt   = 12
)

// Message is a message from the kernel, or one that was sent. It has at least
// MessageHeaderLen bytes.
type Message []byte

// Type returns the type.
func (m Message) Type() uint16 { return binary.NativeEndian.Uint16(m[TypeAt:]) }

// Seq returns the sequence number of the request that the message answers.
func (m Message) Seq() uint32 { return binary.NativeEndian.Uint32(m[seqAt:]) }

// Port returns the netlink port of the sender of the request.
func (m Message) Port() uint32 { return binary.NativeEndian.Uint32(m[portAt:]) }

func (m Message) flags() uint16 { return binary.NativeEndian.Uint16(m[FlagsAt:]) }

// Attributes returns the part behind the header of nfnetlink.
func (m Message) Attributes() []byte { return m[min(HeaderLen, len(m)):] }

// Messages returns the messages in a datagram. An error comes last.
func Messages(data []byte) iter.Seq2[Message, error] {
	return func(yield func(Message, error) bool) {
		for len(data) >= MessageHeaderLen {
			n := int(binary.NativeEndian.Uint32(data[lengthAt:]))
			if n < MessageHeaderLen || n > len(data) {
				yield(nil, fmt.Errorf("netlink message of %d bytes in a datagram of %d", n, len(data)))
				return
			}
			if !yield(data[:n], nil) {
				return
			}
			data = data[min(Align(n), len(data)):]
		}
	}
}

// Reply is an NLMSG_ERROR message: the kernel acknowledges or refuses a
// message.
type Reply struct {
	Seq     uint32
	Errno   unix.Errno // 0 for an acknowledgement
	Message string     // the explanation of the kernel, if any
	Offset  uint32     // of the refused attribute in the message, 0 if unknown
}

// Err returns the error of a refusal, or nil.
func (r Reply) Err() error {
	switch {
	case r.Errno == 0:
		return nil
	case r.Message == "":
		return r.Errno
	}
	return fmt.Errorf("%w: %s", r.Errno, r.Message)
}

// ParseReply decodes an NLMSG_ERROR message.
func ParseReply(msg Message) (Reply, error) {
	const errnoLen = 4
	if len(msg) < MessageHeaderLen+errnoLen || msg.Type() != unix.NLMSG_ERROR {
		return Reply{}, fmt.Errorf("unexpected netlink message of %d bytes", len(msg))
	}
	r := Reply{Seq: msg.Seq(), Errno: unix.Errno(-int32(binary.NativeEndian.Uint32(msg[MessageHeaderLen:])))}
	at := MessageHeaderLen + errnoLen + MessageHeaderLen // after the header of the refused message
	// The refused message is not copied as a whole (see Socket.configure).
	const explained = unix.NLM_F_ACK_TLVS | unix.NLM_F_CAPPED
	if msg.flags()&explained != explained || len(msg) < at {
		return r, nil
	}
	EachAttr(msg[at:], func(typ uint16, value []byte) {
		switch {
		case typ == unix.NLMSGERR_ATTR_MSG:
			r.Message = unix.ByteSliceToString(value)
		case typ == unix.NLMSGERR_ATTR_OFFS && len(value) == 4:
			r.Offset = binary.NativeEndian.Uint32(value)
		}
	})
	return r, nil
}

// maxAttr is the largest length of an attribute.
const maxAttr = math.MaxUint16

// Writer appends netlink messages to Buf. It writes the length of a message or
// nested attribute when that ends, so that nothing is copied.
type Writer struct {
	Buf []byte
	// Seq is the sequence number of the last message.
	Seq uint32
	// Overflow is set if an attribute became longer than 65535 bytes.
	Overflow bool
}

// Begin starts a message of nfnetlink and returns its offset.
func (w *Writer) Begin(typ, flags uint16, family Family, resID uint16) int {
	at := len(w.Buf)
	w.Seq++
	ne := binary.NativeEndian
	w.Buf = append(w.Buf, 0, 0, 0, 0) // the length, which End writes
	w.Buf = ne.AppendUint16(w.Buf, typ)
	w.Buf = ne.AppendUint16(w.Buf, flags|unix.NLM_F_REQUEST)
	w.Buf = ne.AppendUint32(w.Buf, w.Seq)
	w.Buf = ne.AppendUint32(w.Buf, 0) // the port, which the kernel sets
	w.Buf = append(w.Buf, byte(family), unix.NFNETLINK_V0)
	w.Buf = binary.BigEndian.AppendUint16(w.Buf, resID)
	return at
}

// End completes the message that starts at offset at.
func (w *Writer) End(at int) {
	binary.NativeEndian.PutUint32(w.Buf[at+lengthAt:], uint32(len(w.Buf)-at))
}

// Bytes writes an attribute.
func (w *Writer) Bytes(typ uint16, value []byte) {
	w.Header(typ, len(value))
	w.Buf = append(w.Buf, value...)
	w.Pad()
}

// CString writes a NUL-terminated string.
func (w *Writer) CString(typ uint16, value string) {
	w.Header(typ, len(value)+1)
	w.Buf = append(w.Buf, value...)
	w.Buf = append(w.Buf, 0)
	w.Pad()
}

// Uint8 writes a number.
func (w *Writer) Uint8(typ uint16, value uint8) {
	w.Header(typ, 1)
	w.Buf = append(w.Buf, value, 0, 0, 0)
}

// Uint16 writes a number in network byte order.
func (w *Writer) Uint16(typ, value uint16) {
	w.Header(typ, 2)
	w.Buf = append(w.Buf, byte(value>>8), byte(value), 0, 0)
}

// Uint32 writes a number in network byte order.
func (w *Writer) Uint32(typ uint16, value uint32) {
	w.Header(typ, 4)
	w.Buf = binary.BigEndian.AppendUint32(w.Buf, value)
}

// Uint64 writes a number in network byte order.
func (w *Writer) Uint64(typ uint16, value uint64) {
	w.Header(typ, 8)
	w.Buf = binary.BigEndian.AppendUint64(w.Buf, value)
}

// Addr writes an address, with the type of the attribute for its family.
func (w *Writer) Addr(typ4, typ6 uint16, addr netip.Addr) {
	if addr.Is4() {
		a := addr.As4()
		w.Bytes(typ4, a[:])
		return
	}
	a := addr.As16()
	w.Bytes(typ6, a[:])
}

// Header starts an attribute with a value of n bytes.
func (w *Writer) Header(typ uint16, n int) {
	w.Overflow = w.Overflow || AttrHeaderLen+n > maxAttr
	w.Buf = binary.NativeEndian.AppendUint16(w.Buf, uint16(AttrHeaderLen+n))
	w.Buf = binary.NativeEndian.AppendUint16(w.Buf, typ)
}

// Pad completes an attribute.
func (w *Writer) Pad() {
	for len(w.Buf)%4 != 0 {
		w.Buf = append(w.Buf, 0)
	}
}

// Nest starts a nested attribute and returns its offset.
func (w *Writer) Nest(typ uint16) int {
	at := len(w.Buf)
	w.Header(typ|unix.NLA_F_NESTED, 0)
	return at
}

// Unnest completes the nested attribute that starts at offset at.
func (w *Writer) Unnest(at int) {
	n := len(w.Buf) - at
	w.Overflow = w.Overflow || n > maxAttr
	binary.NativeEndian.PutUint16(w.Buf[at:], uint16(n))
}

// AttrHeaderLen is the length of the header of an attribute (struct nlattr).
const AttrHeaderLen = unix.SizeofNlAttr

// EachAttr calls f with the type and value of each attribute in b. It stops
// at the first incomplete attribute.
func EachAttr(b []byte, f func(typ uint16, value []byte)) {
	EachAttrAt(b, 0, func(typ uint16, from, to int) { f(typ, b[from+AttrHeaderLen:to]) })
}

// EachAttrAt calls f with the type and the position of each attribute in b,
// starting at offset at. It stops at the first incomplete attribute.
func EachAttrAt(b []byte, at int, f func(typ uint16, from, to int)) {
	for at+AttrHeaderLen <= len(b) {
		n := int(binary.NativeEndian.Uint16(b[at:]))
		if n < AttrHeaderLen || at+n > len(b) {
			return
		}
		f(binary.NativeEndian.Uint16(b[at+2:])&^(unix.NLA_F_NESTED|unix.NLA_F_NET_BYTEORDER), at, at+n)
		at += Align(n)
	}
}

// Attr returns the value of the last attribute of type want in b, or nil.
func Attr(b []byte, want uint16) (found []byte) {
	EachAttr(b, func(typ uint16, value []byte) {
		if typ == want {
			found = value
		}
	})
	return found
}

// Align returns the length that n bytes take in a message.
func Align(n int) int { return (n + 3) &^ 3 }

// Uint8 decodes a number. It returns 0 if b has another length, as the
// functions for larger numbers in network byte order do.
func Uint8(b []byte) uint8 { return decode(b, 1, func(b []byte) uint8 { return b[0] }) }

// Uint16 is Uint8 for 16 bits.
func Uint16(b []byte) uint16 { return decode(b, 2, binary.BigEndian.Uint16) }

// Uint32 is Uint8 for 32 bits.
func Uint32(b []byte) uint32 { return decode(b, 4, binary.BigEndian.Uint32) }

// Uint64 is Uint8 for 64 bits.
func Uint64(b []byte) uint64 { return decode(b, 8, binary.BigEndian.Uint64) }

func decode[T any](b []byte, size int, number func([]byte) T) (n T) {
	if len(b) == size {
		n = number(b)
	}
	return n
}
