package nft

import (
	"encoding/binary"
	"fmt"

	"golang.org/x/sys/unix"
)

// reply is the kernel's answer to one message: an acknowledgement, or an error.
type reply struct {
	seq     uint32
	errno   unix.Errno // 0: acknowledged
	message string     // the kernel's own explanation
	offset  uint32     // of the attribute that the kernel complains about, in the message; 0 if it does not say
}

// err returns the error that the kernel answered, nil if it acknowledged.
func (r reply) err() error {
	switch {
	case r.errno == 0:
		return nil
	case r.message == "":
		return r.errno
	}
	return fmt.Errorf("%w: %s", r.errno, r.message)
}

// parseReply decodes an NLMSG_ERROR message, of which the kernel sends one a datagram.
func parseReply(msg []byte) (reply, error) {
	const errnoLen = 4
	if len(msg) < nlmsgHeaderLen+errnoLen || binary.NativeEndian.Uint16(msg[4:]) != unix.NLMSG_ERROR {
		return reply{}, fmt.Errorf("unexpected netlink message of %d bytes", len(msg))
	}
	r := reply{
		seq:   binary.NativeEndian.Uint32(msg[8:]),
		errno: unix.Errno(-int32(binary.NativeEndian.Uint32(msg[nlmsgHeaderLen:]))),
	}
	flags := binary.NativeEndian.Uint16(msg[6:])
	at := nlmsgHeaderLen + errnoLen + nlmsgHeaderLen // the header of the refused message is repeated
	if flags&unix.NLM_F_ACK_TLVS == 0 || len(msg) < at {
		return r, nil
	}
	if flags&unix.NLM_F_CAPPED == 0 { // and so is the rest of it
		n := int(binary.NativeEndian.Uint32(msg[nlmsgHeaderLen+errnoLen:])) - nlmsgHeaderLen
		if n < 0 || n > len(msg)-at {
			return r, nil
		}
		at += align4(n)
	}
	eachAttr(msg, at, func(typ uint16, from, to int) {
		switch value := msg[from+attrHeaderLen : to]; {
		case typ == unix.NLMSGERR_ATTR_MSG:
			r.message = cString(value)
		case typ == unix.NLMSGERR_ATTR_OFFS && len(value) == 4:
			r.offset = binary.NativeEndian.Uint32(value)
		}
	})
	return r, nil
}
