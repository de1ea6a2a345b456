package localhost

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/healthcheck/connlimit"
)

// connection is a connection of a client and the one to its endpoint.
type connection struct {
	client, endpoint *net.TCPConn // endpoint is nil while it is being opened
	port             uint16
	target           netip.AddrPort // of endpoint
	place            *connlimit.Conn[uint16]
	life             context.Context // ends when the connection is reset
	end              context.CancelFunc
	ended            atomic.Int32 // directions of which all bytes were passed on
	broken           atomic.Bool  // the receiver of a direction has closed
}

// forward copies both directions until both have ended, or until the
// connection is reset. It closes both sides.
func (c *connection) forward(buffers *sync.Pool) {
	var upstream sync.WaitGroup
	upstream.Go(func() { c.forwardOne(c.endpoint, c.client, buffers) })
	c.forwardOne(c.client, c.endpoint, buffers)
	upstream.Wait()
}

// forwardOne copies one direction. The end of the data and a reset pass from
// one side to the other, as if there were only one connection.
func (c *connection) forwardOne(to, from *net.TCPConn, buffers *sync.Pool) {
	err := c.pass(to, from, buffers)
	if err == nil {
		err = sent(to.CloseWrite())
	}
	var closed *receiverError
	switch {
	case errors.As(err, &closed):
		// A server can answer before it has read a request, and close. The
		// other direction passes the answer on before it resets both sides.
		c.broken.Store(true)
		if c.ended.Load() > 0 {
			c.reset()
		}
	case err != nil:
		c.reset()
	case c.ended.Add(1) == 2:
		c.client.Close()
		c.endpoint.Close()
	case c.broken.Load() || awaitReset(from):
		c.reset()
	}
}

// reset resets both sides, unless they are closed.
func (c *connection) reset() {
	reset(c.client)
	if c.endpoint != nil {
		reset(c.endpoint)
	}
}

// reset closes a connection with a TCP reset.
func reset(c *net.TCPConn) {
	c.SetLinger(0)
	c.Close()
}

// receiverError is an error of the side that receives.
type receiverError struct{ error }

// sent returns the error of an operation on the side that receives, nil for
// nil.
func sent(err error) error {
	if err == nil {
		return nil
	}
	return &receiverError{err}
}

// pass copies bytes until the sender ends them. The bytes stay in the receive
// buffer of the sender's socket until the receiver takes them, so a connection
// that waits for either side holds no buffer. io.Copy would use splice, whose
// pipe takes two file descriptors for each direction, also without traffic.
func (c *connection) pass(to, from *net.TCPConn, buffers *sync.Pool) error {
	source, err := from.SyscallConn()
	if err != nil {
		return err
	}
	sink, err := to.SyscallConn()
	if err != nil {
		return sent(err)
	}
	for {
		buffer, n, err := peek(source, buffers)
		if err != nil {
			return err
		}
		c.place.Use() // before the receiver can answer
		written, err := move(sink, source, buffer[:n])
		buffers.Put(buffer)
		if n == 0 || err != nil {
			return err
		}
		if written < n {
			if err := awaitWritable(to, sink, source); err != nil {
				return err
			}
		}
	}
}

// peek waits for bytes and copies them into a buffer, which the caller returns
// to buffers. At the end of the data it returns 0 bytes. While it waits, and
// after an error, it refers to no buffer.
func peek(source syscall.RawConn, buffers *sync.Pool) (buffer *[bufferSize]byte, n int, err error) {
	var failed error
	err = source.Read(func(fd uintptr) (ready bool) {
		b := buffers.Get().(*[bufferSize]byte)
		if n, failed = receive(fd, b[:], unix.MSG_PEEK); failed != nil {
			buffers.Put(b)
			return failed != unix.EAGAIN
		}
		buffer = b
		return true
	})
	if err == nil {
		err = failed
	}
	return buffer, n, err
}

// move writes as many peeked bytes as the receiver takes, and removes them from
// the source.
func move(sink, source syscall.RawConn, bytes []byte) (written int, err error) {
	if len(bytes) == 0 {
		return 0, nil
	}
	var failed error
	err = sink.Control(func(fd uintptr) { written, failed = unix.Write(int(fd), bytes) })
	switch err = errors.Join(err, failed); {
	case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.EINTR):
		return 0, nil // the caller waits and tries again
	case err != nil:
		return 0, sent(err)
	}
	n := 0
	// copies nothing
	err = source.Control(func(fd uintptr) { n, failed = receive(fd, bytes[:written], unix.MSG_TRUNC) })
	if err = errors.Join(err, failed); err == nil && n != written {
		err = io.ErrUnexpectedEOF // the kernel does not do that
	}
	return written, err
}

// receive is the system call recv.
func receive(fd uintptr, bytes []byte, flags int) (n int, err error) {
	for {
		if n, _, err = unix.Recvfrom(int(fd), bytes, flags); err != unix.EINTR {
			return n, err
		}
	}
}

// stallTime is how long a receiver may not read before the sender is checked.
const stallTime = 2 * time.Second

// errSenderReset is returned if the sender reset the connection while the
// receiver did not read.
var errSenderReset = errors.New("the sender reset the connection")

// awaitWritable waits until the receiver takes bytes. A reset of the sender
// ends it.
func awaitWritable(to *net.TCPConn, sink, source syscall.RawConn) error {
	for {
		if err := to.SetWriteDeadline(time.Now().Add(stallTime)); err != nil {
			return sent(err)
		}
		err := sink.Write(func(fd uintptr) (ready bool) { return poll(fd, unix.POLLOUT) != 0 })
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return sent(err)
		}
		if isReset(source) {
			return errSenderReset
		}
	}
}

// isReset reports whether the peer has reset a connection, also if there are
// bytes to read.
func isReset(source syscall.RawConn) (found bool) {
	err := source.Control(func(fd uintptr) { found = poll(fd, 0)&unix.POLLERR != 0 })
	return err != nil || found
}

// poll returns those events and errors that are present.
func poll(fd uintptr, events int16) int16 {
	list := []unix.PollFd{{Fd: int32(fd), Events: events}}
	if _, err := unix.Poll(list, 0); err != nil {
		return unix.POLLERR
	}
	return list[0].Revents
}

// awaitReset waits until the sender of a direction that has ended resets the
// connection. It returns false if the connection is closed first. Reading does
// not find a reset after the end of the data.
func awaitReset(from *net.TCPConn) bool {
	source, err := from.SyscallConn()
	if err != nil {
		return false
	}
	found := false
	err = source.Read(func(fd uintptr) (ready bool) {
		code, err := syscall.GetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_ERROR)
		found = err == nil && code != 0
		return found || err != nil
	})
	return err == nil && found
}
