package nfnetlink

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"
)

// A datagram that is too large is not sent in part.
func TestTooLargeToSend(t *testing.T) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fds[0])
	defer unix.Close(fds[1])
	s := &Socket{FD: fds[0], sendBuf: 1 << 30} // so that Send does not enlarge the buffer
	if err := s.Send(make([]byte, 16<<20)); !errors.Is(err, unix.EMSGSIZE) {
		t.Errorf("got %v, want EMSGSIZE", err)
	}
}

// A second Close does not close the descriptor of another socket.
func TestCloseAgain(t *testing.T) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fds[0])
	s := &Socket{FD: fds[1]}
	for range 2 {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	if s.FD >= 0 {
		t.Errorf("a closed socket has descriptor %d", s.FD)
	}
}
