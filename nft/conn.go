package nft

import (
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Conn is a netlink connection to nf_tables of one network namespace. It must
// not be used by several goroutines at the same time.
//
// The kernel processes a request while it is sent, so the answer is available
// when sending returns. Methods therefore wait only for the work of the
// kernel and for transactions of other programs that are in progress.
type Conn struct {
	fd      int
	sendBuf int // requested size of the send buffer in bytes
	recv    []byte
	seq     uint32
	// inSnapshot is set while Snapshot calls its function.
	inSnapshot bool
}

const (
	// receiveBuffer is the size of the socket's receive buffer. The kernel
	// can answer each message of a batch with an error, which takes about 800
	// bytes of kernel memory.
	receiveBuffer = 8 << 20
	// receiveSize is the largest datagram that is received. The pieces of a
	// dump have at most 32 KiB.
	receiveSize = 64 << 10
)

// Open connects to nf_tables in the network namespace of the calling thread.
// The connection stays with that namespace, whichever thread uses it. Reading
// and writing require CAP_NET_ADMIN in the namespace.
func Open() (*Conn, error) {
	fd, err := openSocket()
	if err != nil {
		return nil, err
	}
	c := &Conn{fd: fd, recv: make([]byte, receiveSize)}
	if err := c.setUp(); err != nil {
		unix.Close(fd)
		return nil, err
	}
	return c, nil
}

// openSocket opens a netlink socket to nfnetlink.
func openSocket() (fd int, err error) {
	fd, err = unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER)
	if err != nil {
		return -1, fmt.Errorf("open netlink socket: %w", err)
	}
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		unix.Close(fd)
		return -1, fmt.Errorf("bind netlink socket: %w", err)
	}
	return fd, nil
}

func (c *Conn) setUp() error {
	if err := unix.SetsockoptInt(c.fd, unix.SOL_NETLINK, unix.NETLINK_EXT_ACK, 1); err != nil {
		return fmt.Errorf("set NETLINK_EXT_ACK (Linux 4.12) on netlink socket: %w", err)
	}
	if err := unix.SetsockoptInt(c.fd, unix.SOL_NETLINK, unix.NETLINK_CAP_ACK, 1); err != nil {
		return fmt.Errorf("set NETLINK_CAP_ACK (Linux 4.3) on netlink socket: %w", err)
	}
	if err := setBuffer(c.fd, unix.SO_RCVBUFFORCE, unix.SO_RCVBUF, receiveBuffer); err != nil {
		return fmt.Errorf("set size of receive buffer of netlink socket: %w", err)
	}
	return nil
}

// setBuffer sets the size of a socket buffer. With CAP_NET_ADMIN in the
// initial user namespace the size can exceed the limit of the system.
func setBuffer(fd, force, option, size int) error {
	if unix.SetsockoptInt(fd, unix.SOL_SOCKET, force, size) == nil {
		return nil
	}
	return unix.SetsockoptInt(fd, unix.SOL_SOCKET, option, size)
}

// Port returns the netlink port of the connection. A Monitor reports the port
// from which each transaction was sent.
func (c *Conn) Port() (uint32, error) {
	sa, err := unix.Getsockname(c.fd)
	if err != nil {
		return 0, fmt.Errorf("read port of netlink socket: %w", err)
	}
	port, ok := sa.(*unix.SockaddrNetlink)
	if !ok {
		return 0, fmt.Errorf("read port of netlink socket: got address of type %T", sa)
	}
	return port.Pid, nil
}

// Close closes the connection. It does not change the ruleset.
func (c *Conn) Close() error { return unix.Close(c.fd) }

// send sends one datagram, which the send buffer must hold as a whole. After
// an error the kernel received nothing: EMSGSIZE if the buffer is limited to
// a smaller size, ENOBUFS if the kernel had no memory.
func (c *Conn) send(data []byte) error {
	if need := len(data) + 4096; need > c.sendBuf {
		if err := setBuffer(c.fd, unix.SO_SNDBUFFORCE, unix.SO_SNDBUF, need); err != nil {
			return fmt.Errorf("set size of send buffer: %w", err)
		}
		c.sendBuf = need
	}
	for {
		err := unix.Send(c.fd, data, 0) // to port 0, which is the kernel
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// discard drops pending answers, such as the rest of a dump that was
// abandoned.
func (c *Conn) discard() {
	for {
		if _, err := c.receive(); err != nil && !errors.Is(err, unix.ENOBUFS) {
			return
		}
	}
}

// receive returns the next datagram from the kernel, which is valid until the
// next call. The error is EAGAIN if none is pending, and ENOBUFS once if some
// were lost.
//
// The sender is not checked: only processes with CAP_NET_ADMIN can send to
// the socket, and those can change the tables anyway.
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

// receiveWithin waits for a message that was not requested. It returns none
// after the wait and after a signal. Lost messages are reported once, before
// the next one.
func receiveWithin(fd int, buf []byte, wait time.Duration) ([]byte, error) {
	timeout := unix.NsecToTimeval(max(wait, time.Millisecond).Nanoseconds())
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &timeout); err != nil {
		return nil, os.NewSyscallError("setsockopt SO_RCVTIMEO", err)
	}
	for {
		n, _, err := unix.Recvfrom(fd, buf, 0)
		switch {
		case errors.Is(err, unix.ENOBUFS):
			continue
		case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.EINTR):
			return nil, nil
		case err != nil:
			return nil, err
		}
		return buf[:n], nil
	}
}
