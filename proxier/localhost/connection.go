package localhost

import (
	"errors"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// connection is a connection of a client and the one to its endpoint.
type connection struct {
	client, endpoint *net.TCPConn // endpoint is nil while it is being opened
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
	err := pass(to, from, buffers)
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

// pass copies bytes until the sender ends them. It takes a buffer when there
// are bytes to read, and returns it after writing them, so that a connection
// without traffic holds none. io.Copy would use splice, whose pipe takes two
// file descriptors for each direction, also without traffic.
func pass(to, from *net.TCPConn, buffers *sync.Pool) error {
	source, err := from.SyscallConn()
	if err != nil {
		return err
	}
	for {
		buffer, n, err := receive(source, buffers)
		if err != nil {
			return err
		}
		if n > 0 {
			err = write(to, source, buffer[:n])
		}
		buffers.Put(buffer)
		if n == 0 || err != nil {
			return err
		}
	}
}

// stallTime is how long a write waits for a receiver that does not read before
// the sender is checked.
const stallTime = 5 * time.Second

// errSenderReset is returned if the sender reset the connection while the
// receiver did not read.
var errSenderReset = errors.New("the sender reset the connection")

// write writes bytes. A reset of the sender ends it, although it does not read
// from the sender.
func write(to *net.TCPConn, source syscall.RawConn, bytes []byte) error {
	for {
		if err := to.SetWriteDeadline(time.Now().Add(stallTime)); err != nil {
			return sent(err)
		}
		n, err := to.Write(bytes)
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return sent(err)
		}
		if isReset(source) {
			return errSenderReset
		}
		bytes = bytes[n:]
	}
}

// isReset reports whether the peer has reset a connection, also if there are
// bytes to read.
func isReset(source syscall.RawConn) (found bool) {
	err := source.Control(func(fd uintptr) {
		poll := []unix.PollFd{{Fd: int32(fd)}}
		n, err := unix.Poll(poll, 0)
		found = err == nil && n > 0 && poll[0].Revents&unix.POLLERR != 0
	})
	return err != nil || found
}

// receive waits for bytes and reads them into a buffer, which the caller
// returns to buffers. At the end of the data it returns 0 bytes.
func receive(source syscall.RawConn, buffers *sync.Pool) (buffer *[bufferSize]byte, n int, err error) {
	var failed error
	err = source.Read(func(fd uintptr) (ready bool) {
		buffer = buffers.Get().(*[bufferSize]byte)
		for {
			n, failed = syscall.Read(int(fd), buffer[:])
			if failed != syscall.EINTR {
				break
			}
		}
		if failed != nil {
			buffers.Put(buffer)
		}
		return failed != syscall.EAGAIN
	})
	if err == nil {
		err = failed
	}
	return buffer, n, err
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
