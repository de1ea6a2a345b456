package localhost

import (
	"net"
	"sync"
	"sync/atomic"
	"syscall"
)

// connection is a connection of a client and the one to its endpoint.
type connection struct {
	client, endpoint *net.TCPConn // endpoint is nil while it is being opened
	ended            atomic.Int32 // directions that have ended
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
		err = to.CloseWrite()
	}
	switch {
	case err != nil:
		c.reset()
	case c.ended.Add(1) == 2:
		c.client.Close()
		c.endpoint.Close()
	case awaitReset(from):
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
			_, err = to.Write(buffer[:n])
		}
		buffers.Put(buffer)
		if n == 0 || err != nil {
			return err
		}
	}
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
