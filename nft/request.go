package nft

import (
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// errIncomplete is returned if the kernel did not send the end of an answer.
var errIncomplete = errors.New("incomplete answer from the kernel")

// request sends one request to nf_tables and calls each with the attributes
// of every message of the answer. The error is ErrGeneration if the ruleset
// changed while the kernel assembled the answer.
func (c *Conn) request(
	typ, flags uint16, family Family, body func(w *messageWriter), each func(attributes []byte),
) error {
	c.discard()
	if flags&unix.NLM_F_DUMP == 0 {
		flags |= unix.NLM_F_ACK // marks the end of the answer, as NLMSG_DONE does for dumps
	}
	w := messageWriter{seq: c.seq}
	at := w.beginNFT(typ, flags, family)
	if body != nil {
		body(&w)
	}
	w.end(at)
	c.seq = w.seq
	if err := c.send(w.buf); err != nil {
		return err
	}
	for {
		data, err := c.receive()
		if errors.Is(err, unix.EAGAIN) {
			// Not a matter of time: receiving one piece of a dump makes the
			// kernel prepare the next.
			return errIncomplete
		}
		if err != nil {
			return err
		}
		done, err := eachMessage(data, w.seq, each)
		if done || err != nil {
			return err
		}
	}
}

// eachMessage calls each with the attributes of every message in a datagram
// that answers request seq. It reports whether the answer ends with this
// datagram.
func eachMessage(data []byte, seq uint32, each func(attributes []byte)) (done bool, err error) {
	for len(data) >= nlmsgHeaderLen {
		n := int(binary.NativeEndian.Uint32(data[lengthAt:]))
		if n < nlmsgHeaderLen || n > len(data) {
			return true, fmt.Errorf("netlink message of %d bytes in a datagram of %d", n, len(data))
		}
		if msg := data[:n]; binary.NativeEndian.Uint32(msg[seqAt:]) == seq {
			if done, err := parseAnswer(msg, each); done || err != nil {
				return true, err
			}
		}
		data = data[min(align4(n), len(data)):]
	}
	return false, nil
}

// parseAnswer is eachMessage for one message.
func parseAnswer(msg []byte, each func(attributes []byte)) (done bool, err error) {
	typ, flags := binary.NativeEndian.Uint16(msg[typeAt:]), binary.NativeEndian.Uint16(msg[flagsAt:])
	if flags&unix.NLM_F_DUMP_INTR != 0 { // NLMSG_DONE can have it, too
		return true, ErrGeneration
	}
	switch {
	case typ == unix.NLMSG_DONE:
		return true, dumpError(msg)
	case typ == unix.NLMSG_ERROR:
		r, err := parseReply(msg)
		if err == nil {
			err = r.err()
		}
		return true, err
	case typ>>8 == unix.NFNL_SUBSYS_NFTABLES && len(msg) >= nlmsgHeaderLen+nfgenmsgLen:
		each(msg[nlmsgHeaderLen+nfgenmsgLen:])
	}
	return false, nil
}

// dumpError returns the error in the NLMSG_DONE message of a dump, or nil.
func dumpError(done []byte) error {
	if len(done) < nlmsgHeaderLen+4 {
		return nil
	}
	if n := int32(binary.NativeEndian.Uint32(done[nlmsgHeaderLen:])); n < 0 {
		return unix.Errno(-n)
	}
	return nil
}

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
