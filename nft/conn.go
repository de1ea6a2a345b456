package nft

import (
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// Conn is a lasting netlink connection to nf_tables of the network namespace in which it was opened. It is not safe
// for use by several goroutines at once.
//
// The kernel works on a request while it is being sent, so that its answers are there when sending returns. A
// method therefore never waits for anything but the kernel's own work.
type Conn struct {
	fd      int
	sendBuf int // size that the send buffer has, in bytes
	recv    []byte
	seq     uint32
}

const (
	// receiveBuffer is the size of the socket's receive buffer. Every message of a batch can be answered with an error of
	// about 800 bytes of kernel memory.
	receiveBuffer = 8 << 20
	// receiveSize is room for one message that the kernel sends: dumps come in pieces of at most 32 KiB.
	receiveSize = 64 << 10
)

// Open connects to nf_tables in the network namespace of the calling thread.
func Open() (*Conn, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER)
	if err != nil {
		return nil, fmt.Errorf("open netlink socket: %w", err)
	}
	c := &Conn{fd: fd, recv: make([]byte, receiveSize)}
	if err := c.setUp(); err != nil {
		unix.Close(fd)
		return nil, err
	}
	return c, nil
}

func (c *Conn) setUp() error {
	if err := unix.Bind(c.fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return fmt.Errorf("bind netlink socket: %w", err)
	}
	for _, o := range []struct {
		name         string
		level, value int
		option       int
	}{
		{"NETLINK_EXT_ACK", unix.SOL_NETLINK, 1, unix.NETLINK_EXT_ACK},
		{"NETLINK_CAP_ACK", unix.SOL_NETLINK, 1, unix.NETLINK_CAP_ACK},
	} {
		if err := unix.SetsockoptInt(c.fd, o.level, o.option, o.value); err != nil {
			return fmt.Errorf("set %s on netlink socket: %w", o.name, err)
		}
	}
	if err := c.setBuffer(unix.SO_RCVBUFFORCE, unix.SO_RCVBUF, receiveBuffer); err != nil {
		return fmt.Errorf("size receive buffer of netlink socket: %w", err)
	}
	return nil
}

// setBuffer sizes a socket buffer, beyond the system's limit where that is allowed.
func (c *Conn) setBuffer(force, option, size int) error {
	if unix.SetsockoptInt(c.fd, unix.SOL_SOCKET, force, size) == nil {
		return nil
	}
	return unix.SetsockoptInt(c.fd, unix.SOL_SOCKET, option, size)
}

// Close closes the connection. What was committed stays.
func (c *Conn) Close() error { return unix.Close(c.fd) }

// Commit carries out the batch in one transaction. An empty batch sends nothing. The error is
//
//   - a *CommitError if the kernel refused the transaction, of which then nothing was carried out,
//   - ErrGeneration if somebody else changed the ruleset (Batch.Expect); nothing was carried out,
//   - ErrUnknownOutcome if the kernel's answer was lost.
func (c *Conn) Commit(b *Batch) error {
	if b.Empty() {
		return nil
	}
	if b.err != nil {
		return b.err
	}
	data := b.finish()
	c.discard()
	if err := c.send(data); err != nil {
		return fmt.Errorf("commit %s: send %d bytes: %w", b.table, len(data), err)
	}
	return c.outcome(b)
}

// outcome reads the kernel's answers to a batch.
func (c *Conn) outcome(b *Batch) error {
	refused := &CommitError{Table: b.table.String()}
	acknowledged, lost := false, false
	for {
		r, err := c.receiveReply()
		switch {
		case errors.Is(err, unix.EAGAIN):
			switch {
			case len(refused.Problems) > 0:
				return refused
			case lost || !acknowledged:
				return fmt.Errorf("commit %s: %w", b.table, ErrUnknownOutcome)
			}
			return nil
		case errors.Is(err, unix.ENOBUFS):
			lost = true
		case err != nil:
			return fmt.Errorf("commit %s: %w: %w", b.table, ErrUnknownOutcome, err)
		case r.errno == unix.ERESTART && r.seq == beginSeq:
			return fmt.Errorf("commit %s: %w", b.table, ErrGeneration)
		case r.errno != 0:
			refused.Problems = append(refused.Problems, b.problem(r))
		case r.seq == b.lastSeq():
			acknowledged = true
		}
	}
}

// send sends one datagram, for which the send buffer must be large enough as a whole.
func (c *Conn) send(data []byte) error {
	if need := len(data) + 4096; need > c.sendBuf {
		if err := c.setBuffer(unix.SO_SNDBUFFORCE, unix.SO_SNDBUF, need); err != nil {
			return fmt.Errorf("size send buffer: %w", err)
		}
		c.sendBuf = need
	}
	for {
		err := unix.Sendto(c.fd, data, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK})
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// discard throws away answers that nobody waits for any more.
func (c *Conn) discard() {
	for {
		if _, err := c.receive(); errors.Is(err, unix.EAGAIN) || (err != nil && !errors.Is(err, unix.ENOBUFS)) {
			return
		}
	}
}

// receive returns the next datagram from the kernel, EAGAIN if there is none.
func (c *Conn) receive() ([]byte, error) {
	for {
		n, _, err := unix.Recvfrom(c.fd, c.recv, unix.MSG_DONTWAIT)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return nil, err
		}
		return c.recv[:n], nil
	}
}

// reply is the kernel's answer to one message.
type reply struct {
	seq     uint32
	errno   unix.Errno
	message string
	offset  uint32 // of the attribute that the kernel complains about, in the message
}

// Attributes and flags of extended acknowledgements (the kernel's netlink.h).
const (
	nlmFlagCapped  = 0x100
	nlmFlagAckTLVs = 0x200
	nlmErrAttrMsg  = 1
	nlmErrAttrOffs = 2
)

func (c *Conn) receiveReply() (reply, error) {
	msg, err := c.receive()
	if err != nil {
		return reply{}, err
	}
	return parseReply(msg)
}

// parseReply decodes an acknowledgement or error message.
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
	at := nlmsgHeaderLen + errnoLen + nlmsgHeaderLen
	if flags&nlmFlagAckTLVs == 0 || len(msg) < at {
		return r, nil
	}
	if flags&nlmFlagCapped == 0 { // the refused message itself follows its header
		n := int(binary.NativeEndian.Uint32(msg[nlmsgHeaderLen+errnoLen:])) - nlmsgHeaderLen
		if n < 0 || at+align4(n) > len(msg) {
			return r, nil
		}
		at += align4(n)
	}
	attrs(msg[at:], func(typ uint16, value []byte) {
		switch {
		case typ == nlmErrAttrMsg && len(value) > 0:
			r.message = string(value[:len(value)-1])
		case typ == nlmErrAttrOffs && len(value) == 4:
			r.offset = binary.NativeEndian.Uint32(value)
		}
	})
	return r, nil
}

// Generation returns the generation number of the ruleset: it grows by one with every transaction that anybody commits in this
// network namespace, and never is 0.
func (c *Conn) Generation() (uint32, error) {
	var gen uint32
	err := c.request(unix.NFT_MSG_GETGEN, 0, 0, nil, func(msg []byte) {
		attrs(msg, func(typ uint16, value []byte) {
			if typ == unix.NFTA_GEN_ID && len(value) == 4 {
				gen = binary.BigEndian.Uint32(value)
			}
		})
	})
	if err != nil {
		return 0, fmt.Errorf("read generation: %w", err)
	}
	return gen, nil
}

// NextGeneration returns the generation that follows gen.
func NextGeneration(gen uint32) uint32 {
	if gen+1 == 0 {
		return 1
	}
	return gen + 1
}

// request sends one request to nf_tables and calls each with the attributes of every message of the answer.
func (c *Conn) request(typ, flags uint16, family Family, body func(w *messageWriter), each func(attrs []byte)) error {
	c.discard()
	c.seq++
	w := messageWriter{seq: c.seq}
	at := w.beginNFT(typ, flags, family)
	if body != nil {
		body(&w)
	}
	w.end(at)
	if err := c.send(w.buf); err != nil {
		return err
	}
	for {
		data, err := c.receive()
		if errors.Is(err, unix.EAGAIN) {
			return nil // all pieces of a dump that fit were there, the others are made as these are read
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
		typ, flags := binary.NativeEndian.Uint16(data[4:]), binary.NativeEndian.Uint16(data[6:])
		if binary.NativeEndian.Uint32(data[8:]) == seq {
			switch {
			case typ == unix.NLMSG_DONE:
				return true, nil
			case flags&unix.NLM_F_DUMP_INTR != 0:
				return true, ErrGeneration
			case typ == unix.NLMSG_ERROR:
				r, err := parseReply(data[:n])
				if err == nil && r.errno != 0 {
					err = r.errno
				}
				return true, err
			case n >= nlmsgHeaderLen+nfgenmsgLen:
				each(data[nlmsgHeaderLen+nfgenmsgLen : n])
			}
		}
		data = data[min(align4(n), len(data)):]
	}
	return false, nil
}
