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
	// receiveLen is the buffer that messages are read into. A dump comes in pieces of at most 32 KiB (netlink_dump in
	// af_netlink.c).
	receiveLen = 64 << 10

	// socketBufferLen is asked for in both directions: room for two pieces of a dump, and for the answers to one
	// batch of deletions if every one of them fails (768 bytes each in the kernel's count).
	socketBufferLen = 512 << 10

	// replyTimeout bounds the wait for an answer. The kernel prepares answers before it returns from the system call
	// that asks, so this only ever passes if an answer was lost.
	replyTimeout = 5 * time.Second
)

// socket is a netlink socket for one request at a time.
type socket struct {
	fd  int
	seq uint32
	buf []byte
}

// openSocket opens a netlink socket that hears the kernel only.
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
	// Connected to the kernel, the socket refuses messages from other processes.
	if err := unix.Connect(s.fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return os.NewSyscallError("connect", err)
	}
	// Errors come without a copy of the request.
	if err := unix.SetsockoptInt(s.fd, unix.SOL_NETLINK, unix.NETLINK_CAP_ACK, 1); err != nil {
		return os.NewSyscallError("setsockopt NETLINK_CAP_ACK", err)
	}
	timeout := unix.NsecToTimeval(int64(replyTimeout))
	if err := unix.SetsockoptTimeval(s.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &timeout); err != nil {
		return os.NewSyscallError("setsockopt SO_RCVTIMEO", err)
	}
	if err := s.resize(unix.SO_RCVBUFFORCE, unix.SO_RCVBUF); err != nil {
		return err
	}
	return s.resize(unix.SO_SNDBUFFORCE, unix.SO_SNDBUF)
}

// resize sets a socket buffer beyond net.core.[rw]mem_max, or within it where that is not permitted (user namespaces).
func (s *socket) resize(force, polite int) error {
	err := unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, force, socketBufferLen)
	if errors.Is(err, unix.EPERM) {
		err = unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, polite, socketBufferLen)
	}
	return os.NewSyscallError("setsockopt socket buffer", err)
}

func (s *socket) close() error { return os.NewSyscallError("close", unix.Close(s.fd)) }

// nextSeq is the sequence number of the next request. 0 is never one.
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

// receive returns what one read gives: one or more messages, valid until the next call. With a receive timeout the
// system call is not restarted after a signal, and the Go runtime sends itself many.
func (s *socket) receive() ([]byte, error) {
	for {
		n, err := unix.Read(s.fd, s.buf)
		switch {
		case err == unix.EINTR:
			continue
		case err == unix.EAGAIN:
			return nil, fmt.Errorf("receive: no answer within %v: %w", replyTimeout, err)
		case err != nil:
			return nil, os.NewSyscallError("receive", err)
		case n == len(s.buf):
			return nil, errTruncated
		default:
			return s.buf[:n], nil
		}
	}
}

// messageError is the error that an NLMSG_ERROR or NLMSG_DONE message carries, nil for an acknowledgement.
func messageError(payload []byte) error {
	if len(payload) < 4 {
		return errTruncated
	}
	if code := int32(binary.NativeEndian.Uint32(payload)); code != 0 {
		return unix.Errno(-code)
	}
	return nil
}
