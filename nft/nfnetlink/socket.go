package nfnetlink

import (
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// datagramLen is the size of the largest datagram that is received. The kernel
// sends a dump in pieces of at most 32 KiB (netlink_dump in af_netlink.c).
const datagramLen = 64 << 10

// Socket is a netlink socket of one network namespace. It must not be used by
// several goroutines at the same time.
//
// The kernel processes a request while it is sent, so the answer is available
// when Send returns, and a read never waits.
//
// Messages are logged at level -10 of slog.Default, which is verbosity 10 of
// klog: the first 50 of each request and of each answer.
type Socket struct {
	FD int
	// Seq is the sequence number of the last request.
	Seq uint32
	// Describe returns the type of a message of the protocol and the objects in
	// it, for the log of messages. It can be nil.
	Describe func(Message) (typ string, objects []slog.Attr)

	sendBuf  int // requested size of the send buffer in bytes
	buf      []byte
	unread   bool // answers may be pending
	messages messageLog
	closed   atomic.Bool
}

// Open opens a socket in the network namespace of the calling thread. It
// receives messages from the kernel only. receiveBuffer is the size of its
// buffer; each answer takes up to 800 bytes of it.
func Open(protocol, receiveBuffer int) (*Socket, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, protocol)
	if err != nil {
		return nil, fmt.Errorf("open netlink socket: %w", err)
	}
	s := &Socket{FD: fd}
	if err := s.configure(receiveBuffer); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func (s *Socket) configure(receiveBuffer int) error {
	// A socket that is connected to the kernel refuses messages from other
	// processes.
	if err := unix.Connect(s.FD, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return fmt.Errorf("connect netlink socket: %w", err)
	}
	if err := unix.SetsockoptInt(s.FD, unix.SOL_NETLINK, unix.NETLINK_EXT_ACK, 1); err != nil {
		return fmt.Errorf("set NETLINK_EXT_ACK (Linux 4.12) on netlink socket: %w", err)
	}
	// Errors do not contain a copy of the request.
	if err := unix.SetsockoptInt(s.FD, unix.SOL_NETLINK, unix.NETLINK_CAP_ACK, 1); err != nil {
		return fmt.Errorf("set NETLINK_CAP_ACK (Linux 4.3) on netlink socket: %w", err)
	}
	if err := s.setBuffer(unix.SO_RCVBUFFORCE, unix.SO_RCVBUF, receiveBuffer); err != nil {
		return fmt.Errorf("set size of receive buffer of netlink socket: %w", err)
	}
	return nil
}

// setBuffer sets the size of a socket buffer. With CAP_NET_ADMIN in the
// initial user namespace the size can exceed the limit of the system.
func (s *Socket) setBuffer(force, option, size int) error {
	if unix.SetsockoptInt(s.FD, unix.SOL_SOCKET, force, size) == nil {
		return nil
	}
	return unix.SetsockoptInt(s.FD, unix.SOL_SOCKET, option, size)
}

// Close closes the socket. It can be called again: another socket may have the
// descriptor by then.
func (s *Socket) Close() error {
	if s.closed.Swap(true) {
		return nil
	}
	return unix.Close(s.FD)
}

// Send sends one datagram, which the send buffer must hold as a whole. After
// an error the kernel received nothing: EMSGSIZE if the buffer is limited to
// a smaller size, ENOBUFS if the kernel had no memory (see ErrLost).
func (s *Socket) Send(data []byte) error {
	if need := len(data) + 4096; need > s.sendBuf {
		if err := s.setBuffer(unix.SO_SNDBUFFORCE, unix.SO_SNDBUF, need); err != nil {
			return fmt.Errorf("set size of send buffer: %w", err)
		}
		s.sendBuf = need
	}
	s.unread = true
	s.messages.end() // of the last answer
	s.log("Netlink request", data)
	s.messages.end()
	for {
		err := unix.Send(s.FD, data, 0)
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// Receive returns the next datagram from the kernel, which is valid until the
// next call. The error is EAGAIN if none is pending, and ErrLost once if some
// were lost.
func (s *Socket) Receive() ([]byte, error) {
	for {
		data, err := s.receive(unix.MSG_DONTWAIT)
		switch {
		case err == nil:
			s.log("Netlink answer", data)
		case errors.Is(err, unix.EINTR):
			continue
		default:
			s.messages.end()
		}
		return data, err
	}
}

func (s *Socket) receive(flags int) ([]byte, error) {
	if s.buf == nil {
		s.buf = make([]byte, datagramLen)
	}
	n, _, err := unix.Recvfrom(s.FD, s.buf, flags)
	switch {
	case errors.Is(err, unix.ENOBUFS):
		return nil, ErrLost
	case err != nil:
		return nil, err
	}
	return s.buf[:n], nil
}

// Discard drops pending answers, such as the rest of a dump that was
// abandoned: until the kernel has sent all of it, it refuses the next dump.
func (s *Socket) Discard() {
	for s.unread {
		_, err := s.Receive()
		s.unread = err == nil || errors.Is(err, ErrLost)
	}
}

// Wait waits for a message that was not requested. It returns none after the
// wait and after a signal. It ignores ErrLost: the message that arrives next is
// returned.
func (s *Socket) Wait(wait time.Duration) ([]byte, error) {
	timeout := unix.NsecToTimeval(max(wait, time.Millisecond).Nanoseconds())
	if err := unix.SetsockoptTimeval(s.FD, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &timeout); err != nil {
		return nil, os.NewSyscallError("setsockopt SO_RCVTIMEO", err)
	}
	for {
		data, err := s.receive(0)
		switch {
		case errors.Is(err, ErrLost):
			continue
		case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.EINTR):
			return nil, nil
		}
		return data, err
	}
}

// Request sends a message, which requests a dump or an acknowledgement, and
// calls each with the messages of the answer. An error of each ends the
// request. See ErrLost for ENOBUFS.
func (s *Socket) Request(w *Writer, each func(Message) error) error {
	s.Discard()
	s.Seq = w.Seq
	defer s.messages.end()
	if err := s.Send(w.Buf); err != nil {
		return err
	}
	for a := (Answer{Seq: w.Seq}); ; {
		data, err := s.Receive()
		if errors.Is(err, unix.EAGAIN) {
			// Not a matter of time: receiving one piece of a dump makes the
			// kernel prepare the next.
			err = ErrIncomplete
		}
		if err != nil {
			return err
		}
		if err := a.Read(data, each); a.Done || err != nil {
			s.unread = !a.Done
			return err
		}
	}
}

// Answer is the state of an answer that consists of several datagrams.
type Answer struct {
	Seq         uint32 // of the request
	Done        bool   // the end was read
	interrupted bool
}

// Read calls each with the messages in a datagram that answer the request,
// without the message that ends the answer.
func (a *Answer) Read(data []byte, each func(Message) error) error {
	for msg, err := range Messages(data) {
		if err != nil {
			return err
		}
		if msg.Seq() != a.Seq {
			continue // an answer to an earlier request
		}
		a.interrupted = a.interrupted || msg.flags()&unix.NLM_F_DUMP_INTR != 0 // NLMSG_DONE can have it, too
		switch typ := msg.Type(); {
		case typ == unix.NLMSG_DONE, typ == unix.NLMSG_ERROR:
			a.Done = true
			return a.end(msg)
		case typ >= unix.NLMSG_MIN_TYPE:
			if err := each(msg); err != nil {
				return err
			}
		}
	}
	return nil
}

// end returns the error in the last message of an answer.
func (a *Answer) end(msg Message) error {
	if a.interrupted {
		return ErrInterrupted
	}
	if msg.Type() == unix.NLMSG_ERROR {
		r, err := ParseReply(msg)
		if err != nil {
			return err
		}
		return r.Err()
	}
	if len(msg) >= MessageHeaderLen+4 {
		if n := int32(binary.NativeEndian.Uint32(msg[MessageHeaderLen:])); n < 0 {
			return unix.Errno(-n)
		}
	}
	return nil
}

// ErrIncomplete is returned if the kernel did not send the end of an answer.
var ErrIncomplete = errors.New("incomplete answer from the kernel")

// ErrInterrupted is returned if what a dump lists changed so much that objects
// may be missing (NLM_F_DUMP_INTR). The messages are valid.
var ErrInterrupted = errors.New("the dump was interrupted")

// ErrLost is returned if messages from the kernel are missing: the receive
// buffer was full, or the kernel had no memory for an answer or for the next
// piece of a dump. It is ENOBUFS, which can have three other meanings.
// Where the error was returned decides:
//
//   - Socket.Receive returns ErrLost. Requests that were sent may have been
//     executed; only their answers are missing.
//   - Socket.Send returns ENOBUFS if the kernel had no memory for the datagram.
//     It received nothing.
//   - Reply.Errno is ENOBUFS if the kernel had no memory to execute a message,
//     and so refused it.
//   - Answer.Read returns ENOBUFS if the kernel had no memory to continue a
//     dump, and ended it. The messages before it are valid.
//
// All four are transient. After ErrLost the outcome of a request that changes
// something is unknown. After the next two the kernel did not execute it.
var ErrLost = fmt.Errorf("messages from the kernel were lost: %w", unix.ENOBUFS)
