package nft

import (
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// errIncomplete says that the kernel's answer to a request ended too early.
var errIncomplete = errors.New("answer of the kernel is incomplete")

// request sends one request to nf_tables and calls each with the attributes of every message of the answer. An
// answer that was pieced together while the ruleset changed is ErrGeneration.
func (c *Conn) request(typ, flags uint16, family Family, body func(w *messageWriter), each func(attrs []byte)) error {
	c.discard()
	if flags&unix.NLM_F_DUMP == 0 {
		flags |= unix.NLM_F_ACK // so that every answer has an end, as dumps do
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
			return errIncomplete // the kernel makes the next piece of a dump while one is being read
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

// eachMessage calls each with the attributes of every message of a datagram that answers request seq. It says whether the answer ends there.
func eachMessage(data []byte, seq uint32, each func(attrs []byte)) (done bool, err error) {
	for len(data) >= nlmsgHeaderLen {
		n := int(binary.NativeEndian.Uint32(data))
		if n < nlmsgHeaderLen || n > len(data) {
			return true, fmt.Errorf("netlink message of %d bytes in %d", n, len(data))
		}
		if msg := data[:n]; binary.NativeEndian.Uint32(msg[8:]) == seq {
			if done, err := oneMessage(msg, each); done || err != nil {
				return true, err
			}
		}
		data = data[min(align4(n), len(data)):]
	}
	return false, nil
}

func oneMessage(msg []byte, each func(attrs []byte)) (done bool, err error) {
	typ, flags := binary.NativeEndian.Uint16(msg[4:]), binary.NativeEndian.Uint16(msg[6:])
	if flags&unix.NLM_F_DUMP_INTR != 0 { // which the last message of a dump can have, too
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

// dumpError returns the error with which the kernel ended a dump, if any: what the message that ends it carries.
func dumpError(done []byte) error {
	if len(done) < nlmsgHeaderLen+4 {
		return nil
	}
	if n := int32(binary.NativeEndian.Uint32(done[nlmsgHeaderLen:])); n < 0 {
		return unix.Errno(-n)
	}
	return nil
}
