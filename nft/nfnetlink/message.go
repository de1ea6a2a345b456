package nfnetlink

import (
	"encoding/binary"
	"fmt"
	"iter"

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
