// Package probe sends the probes of package eject: attempts of this node to
// connect to an endpoint by TCP. A probe is one SYN to the endpoint itself, not
// to a Service. The answer to it is reset before the handshake is complete, so
// that no application accepts a connection.
package probe

import (
	"errors"
	"net/netip"
	"os"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/proxier/eject"
)

// Outcome is the result of a probe.
type Outcome struct {
	eject.Probe
	eject.Result
}

// Send sends a probe from the network namespace of the calling thread, and
// passes its outcome to results once, after eject.ProbeTimeout at the latest.
// It does not block if results has room.
func Send(p eject.Probe, results chan<- Outcome) {
	c, result := begin(p.Addr)
	if c == nil {
		results <- Outcome{p, result}
		return
	}
	go func() {
		result = wait(c)
		c.Close()
		results <- Outcome{p, result}
	}()
}

// metadata are the addresses of metadata services of clouds that are not
// link-local: Azure, Alibaba, Oracle, AWS and Google.
var metadata = [...]netip.Addr{
	netip.AddrFrom4([4]byte{168, 63, 129, 16}), netip.AddrFrom4([4]byte{100, 100, 100, 200}),
	netip.AddrFrom4([4]byte{192, 0, 0, 192}), netip.MustParseAddr("fd00:ec2::254"), netip.MustParseAddr("fd20:ce::254"),
}

// Allowed reports whether an address may get probes. Kubernetes does not allow
// most of the others as endpoints. Anyone who can write EndpointSlices could
// make the node connect to those of metadata services, which trust nodes.
func Allowed(a netip.Addr) bool {
	return a.IsValid() && !a.IsUnspecified() && !a.IsLoopback() && !a.IsLinkLocalUnicast() && !a.IsMulticast() &&
		!slices.Contains(metadata[:], a)
}

// begin begins a connection. It returns nil and the result if there is one at
// once. An error then is this node's own: it has no route, or no socket.
func begin(to netip.AddrPort) (*os.File, eject.Result) {
	if !Allowed(to.Addr()) {
		return nil, eject.Failed
	}
	family, addr := address(to)
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, eject.Failed
	}
	if err = setOptions(fd); err == nil {
		err = unix.Connect(fd, addr)
	}
	if errors.Is(err, unix.EINPROGRESS) {
		return os.NewFile(uintptr(fd), "probe"), ""
	}
	unix.Close(fd)
	if answers(err) {
		return nil, eject.Answered
	}
	return nil, eject.Failed
}

// setOptions makes the kernel send one SYN, and a RST when the socket is
// closed. It also makes it delay the ACK that completes the handshake by 200 ms
// (TCP_DELACK_MAX), as for a client that sends data at once
// (tcp_rcv_synsent_state_process). A RST before that ACK ends the connection
// before the server can accept it. If the process cannot run for 200 ms, the
// server accepts a connection that is then reset.
func setOptions(fd int) error {
	return errors.Join(
		unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_SYNCNT, 1),
		unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_QUICKACK, 0),
		unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1}))
}

func address(to netip.AddrPort) (family int, addr unix.Sockaddr) {
	if to.Addr().Is4() {
		return unix.AF_INET, &unix.SockaddrInet4{Port: int(to.Port()), Addr: to.Addr().As4()}
	}
	return unix.AF_INET6, &unix.SockaddrInet6{Port: int(to.Port()), Addr: to.Addr().As16()}
}

// answers reports whether the error of a connection, nil for none, is an answer
// of the endpoint.
func answers(err error) bool {
	return err == nil || errors.Is(err, unix.ECONNREFUSED) || errors.Is(err, unix.ECONNRESET)
}

// wait waits for the end of the attempt. Errors other than those of answers are
// those of ICMP messages of routers, or of a neighbor that does not answer.
func wait(c *os.File) eject.Result {
	raw, err := c.SyscallConn()
	if err != nil || c.SetWriteDeadline(time.Now().Add(eject.ProbeTimeout)) != nil {
		return eject.Failed
	}
	var ended error
	err = raw.Write(func(fd uintptr) (done bool) {
		done, ended = state(int(fd))
		return done
	})
	if err == nil && answers(ended) {
		return eject.Answered
	}
	return eject.Lost
}

// state reports whether the attempt of a socket ended, and with which error.
func state(fd int) (ended bool, err error) {
	n, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR)
	switch {
	case err != nil:
		return true, err
	case n != 0:
		return true, syscall.Errno(n)
	}
	_, err = unix.Getpeername(fd)
	return err == nil, nil
}
