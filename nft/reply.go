package nft

import (
	"encoding/binary"
	"fmt"

	"golang.org/x/sys/unix"
)

// reply is an NLMSG_ERROR message: the kernel acknowledges or refuses a
// message.
type reply struct {
	seq     uint32
	errno   unix.Errno // 0 for an acknowledgement
	message string     // the explanation of the kernel, if any
	offset  uint32     // of the refused attribute in the message, 0 if unknown
}

// err returns the error of a refusal, or nil.
func (r reply) err() error {
	switch {
	case r.errno == 0:
		return nil
	case r.message == "":
		return r.errno
	}
	return fmt.Errorf("%w: %s", r.errno, r.message)
}

// parseReply decodes an NLMSG_ERROR message. The kernel sends each of them as
// one datagram.
func parseReply(msg []byte) (reply, error) {
	const errnoLen = 4
	if len(msg) < nlmsgHeaderLen+errnoLen || binary.NativeEndian.Uint16(msg[typeAt:]) != unix.NLMSG_ERROR {
		return reply{}, fmt.Errorf("unexpected netlink message of %d bytes", len(msg))
	}
	r := reply{
		seq:   binary.NativeEndian.Uint32(msg[seqAt:]),
		errno: unix.Errno(-int32(binary.NativeEndian.Uint32(msg[nlmsgHeaderLen:]))),
	}
	flags := binary.NativeEndian.Uint16(msg[flagsAt:])
	at := nlmsgHeaderLen + errnoLen + nlmsgHeaderLen // after the header of the refused message
	if flags&unix.NLM_F_ACK_TLVS == 0 || len(msg) < at {
		return r, nil
	}
	if flags&unix.NLM_F_CAPPED == 0 { // the body of the refused message follows its header
		n := int(binary.NativeEndian.Uint32(msg[nlmsgHeaderLen+errnoLen:])) - nlmsgHeaderLen
		if n < 0 || n > len(msg)-at {
			return r, nil
		}
		at += min(align4(n), len(msg)-at)
	}
	eachAttr(msg[at:], func(typ uint16, value []byte) {
		switch {
		case typ == unix.NLMSGERR_ATTR_MSG:
			r.message = cString(value)
		case typ == unix.NLMSGERR_ATTR_OFFS && len(value) == 4:
			r.offset = binary.NativeEndian.Uint32(value)
		}
	})
	return r, nil
}
