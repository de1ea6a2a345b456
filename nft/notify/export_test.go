package notify

import (
	"testing"

	"golang.org/x/sys/unix"
)

// LimitBuffer makes the receive buffer of a Tracer smaller.
func (t *Tracer) LimitBuffer(tb testing.TB, size int) {
	tb.Helper()
	if err := unix.SetsockoptInt(t.socket.FD, unix.SOL_SOCKET, unix.SO_RCVBUF, size); err != nil {
		tb.Fatal(err)
	}
}
