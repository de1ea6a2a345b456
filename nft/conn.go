package nft

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// Conn is a lasting netlink connection to nf_tables of the network namespace in which it was opened. It is not safe
// for use by several goroutines at once.
//
// The kernel works on a request while it is being sent, so that its answers are there when sending returns. A
// method therefore never waits for anything but the kernel's own work, and for transactions of other programs that it is at.
type Conn struct {
	fd      int
	sendBuf int // size that was asked for as the send buffer, in bytes
	recv    []byte
	seq     uint32
	// inSnapshot is set while Snapshot calls its function.
	inSnapshot bool
}

const (
	// receiveBuffer is the size of the socket's receive buffer. Every message of a batch can be answered with an error of
	// about 800 bytes of kernel memory.
	receiveBuffer = 8 << 20
	// receiveSize is room for one datagram that the kernel sends: dumps come in pieces of at most 32 KiB.
	receiveSize = 64 << 10
)

// Open connects to nf_tables in the network namespace of the calling thread. The connection stays with that namespace,
// whichever thread uses it. It takes CAP_NET_ADMIN there.
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
	if err := unix.SetsockoptInt(c.fd, unix.SOL_NETLINK, unix.NETLINK_EXT_ACK, 1); err != nil {
		return fmt.Errorf("set NETLINK_EXT_ACK on netlink socket: %w", err)
	}
	if err := unix.SetsockoptInt(c.fd, unix.SOL_NETLINK, unix.NETLINK_CAP_ACK, 1); err != nil {
		return fmt.Errorf("set NETLINK_CAP_ACK on netlink socket: %w", err)
	}
	if err := c.setBuffer(unix.SO_RCVBUFFORCE, unix.SO_RCVBUF, receiveBuffer); err != nil {
		return fmt.Errorf("size receive buffer of netlink socket: %w", err)
	}
	return nil
}

// setBuffer sizes a socket buffer, beyond the system's limit where that is allowed: with CAP_NET_ADMIN in the
// initial user namespace.
func (c *Conn) setBuffer(force, option, size int) error {
	if unix.SetsockoptInt(c.fd, unix.SOL_SOCKET, force, size) == nil {
		return nil
	}
	return unix.SetsockoptInt(c.fd, unix.SOL_SOCKET, option, size)
}

// Port returns the netlink port of the connection, which messages about its
// transactions carry (see Monitor).
func (c *Conn) Port() (uint32, error) {
	sa, err := unix.Getsockname(c.fd)
	if err != nil {
		return 0, fmt.Errorf("read port of netlink socket: %w", err)
	}
	port, ok := sa.(*unix.SockaddrNetlink)
	if !ok {
		return 0, fmt.Errorf("read port of netlink socket: it is a %T", sa)
	}
	return port.Pid, nil
}

// Close closes the connection. What was committed stays.
func (c *Conn) Close() error { return unix.Close(c.fd) }

// send sends one datagram, for which the send buffer must be large enough as a whole. After an error the kernel has
// seen nothing of it: EMSGSIZE if the buffer could not be made large enough, ENOBUFS if there was no memory.
func (c *Conn) send(data []byte) error {
	if need := len(data) + 4096; need > c.sendBuf {
		if err := c.setBuffer(unix.SO_SNDBUFFORCE, unix.SO_SNDBUF, need); err != nil {
			return fmt.Errorf("size send buffer: %w", err)
		}
		c.sendBuf = need
	}
	for {
		err := unix.Send(c.fd, data, 0) // to port 0, the kernel, where no other is given
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// discard throws away answers that nobody waits for any more, such as the rest of a dump that was given up.
func (c *Conn) discard() {
	for {
		if _, err := c.receive(); err != nil && !errors.Is(err, unix.ENOBUFS) {
			return
		}
	}
}

// receive returns the next datagram from the kernel, valid until the next call: EAGAIN if there is none, ENOBUFS once if some
// were lost. Nobody else can send to the socket: that takes CAP_NET_ADMIN, which can do anything to the tables anyway.
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
