package nfnetlink

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/test/must"
)

// A datagram that is too large is not sent in part.
func TestTooLargeToSend(t *testing.T) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	must.NoError(t, err)
	defer unix.Close(fds[0])
	defer unix.Close(fds[1])
	s := &Socket{FD: fds[0], sendBuf: 1 << 30} // so that Send does not enlarge the buffer
	if err := s.Send(make([]byte, 16<<20)); !errors.Is(err, unix.EMSGSIZE) {
		t.Errorf("got %v, want EMSGSIZE", err)
	}
}

// A second Close does not close the descriptor of another socket.
func TestCloseAgain(t *testing.T) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	must.NoError(t, err)
	s := &Socket{FD: fd}
	must.NoError(t, s.Close())
	if err := unix.Dup3(2, fd, unix.O_CLOEXEC); err != nil { // another file has the descriptor
		t.Fatal(err)
	}
	if err := errors.Join(s.Close(), unix.Close(fd)); err != nil {
		t.Error(err)
	}
}
