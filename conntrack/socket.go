package conntrack

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// receiveLen is the size of the buffer for dumps. The kernel sends a dump
	// in parts of at most 32 KiB (netlink_dump in af_netlink.c).
	receiveLen = 64 << 10

	// socketBufferLen is the size of the socket buffers for both directions.
	// It is enough for two parts of a dump, and for the answers to one batch
	// of deletions that all fail (768 bytes each, as the kernel counts).
	socketBufferLen = 512 << 10

	// answerTimeout bounds the wait for an answer. The kernel queues the
	// answer before the system call that sends the request returns, so a
	// timeout means that an answer was lost.
	answerTimeout = 5 * time.Second
)

// socket is a netlink socket for one request at a time.
type socket struct {
	fd  int
	seq uint32
	buf []byte
}

// openSocket opens a netlink socket that receives messages from the kernel
// only.
func openSocket(protocol, bufLen int) (*socket, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, protocol)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	s := &socket{fd: fd, buf: make([]byte, bufLen)}
	if err := s.configure(); err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

func (s *socket) configure() error {
	// A socket that is connected to the kernel refuses messages from other
	// processes.
	if err := unix.Connect(s.fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return os.NewSyscallError("connect", err)
	}
	// Errors do not contain a copy of the request.
	if err := unix.SetsockoptInt(s.fd, unix.SOL_NETLINK, unix.NETLINK_CAP_ACK, 1); err != nil {
		return os.NewSyscallError("setsockopt NETLINK_CAP_ACK", err)
	}
	timeout := unix.NsecToTimeval(int64(answerTimeout))
	if err := unix.SetsockoptTimeval(s.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &timeout); err != nil {
		return os.NewSyscallError("setsockopt SO_RCVTIMEO", err)
	}
	if err := s.resize(unix.SO_RCVBUFFORCE, unix.SO_RCVBUF); err != nil {
		return err
	}
	return s.resize(unix.SO_SNDBUFFORCE, unix.SO_SNDBUF)
}

// resize sets the size of a socket buffer, beyond net.core.[rw]mem_max if
// permitted. User namespaces do not permit it.
func (s *socket) resize(force, polite int) error {
	err := unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, force, socketBufferLen)
	if errors.Is(err, unix.EPERM) {
		err = unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, polite, socketBufferLen)
	}
	return os.NewSyscallError("setsockopt socket buffer", err)
}

func (s *socket) close() error { return os.NewSyscallError("close", unix.Close(s.fd)) }

// nextSeq returns the sequence number of the next request, which is never 0.
func (s *socket) nextSeq() uint32 {
	s.seq++
	if s.seq == 0 {
		s.seq = 1
	}
	return s.seq
}

func (s *socket) send(b []byte) error {
	for {
		_, err := unix.Write(s.fd, b)
		if err != unix.EINTR {
			return os.NewSyscallError("send", err)
		}
	}
}

// receive reads one or more messages, which are valid until the next call.
// The kernel does not restart a read with a receive timeout after a signal,
// and the Go runtime often sends signals to its own threads.
func (s *socket) receive() ([]byte, error) {
	for {
		n, err := unix.Read(s.fd, s.buf)
		switch {
		case err == unix.EINTR:
			continue
		case err == unix.EAGAIN:
			return nil, fmt.Errorf("receive: no answer within %v: %w", answerTimeout, err)
		case err != nil:
			return nil, os.NewSyscallError("receive", err)
		case n == len(s.buf):
			return nil, errTruncated
		default:
			return s.buf[:n], nil
		}
	}
}

// messageError returns the error in an NLMSG_ERROR or NLMSG_DONE message, or
// nil for an acknowledgment.
func messageError(payload []byte) error {
	if len(payload) < 4 {
		return errTruncated
	}
	if code := int32(binary.NativeEndian.Uint32(payload)); code != 0 {
		return unix.Errno(-code)
	}
	return nil
}
