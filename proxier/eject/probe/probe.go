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
	try(p.Addr, eject.ProbeTimeout, func(err error) { results <- Outcome{p, resultOf(err)} })
}

// Reply is what comes back for a probe.
type Reply string

// Replies.
const (
	Accepted    Reply = "SYN-ACK"
	Refused     Reply = "RST" // or an ICMP error that the port is unreachable
	Unreachable Reply = "ICMP error"
	Silence     Reply = "nothing"
	NoRoute     Reply = "no route"
	NotSent     Reply = "not sent"
)

// Ask is like Send, for one endpoint, and passes on what came back for it
// within a timeout. The kernel gives up after 3 s. reply may be called before
// Ask returns.
func Ask(to netip.AddrPort, timeout time.Duration, reply func(Reply)) {
	try(to, timeout, func(err error) { reply(replyOf(err)) })
}

// try attempts to connect, and passes on the error once.
func try(to netip.AddrPort, timeout time.Duration, done func(error)) {
	c, err := begin(to)
	if c == nil {
		done(err)
		return
	}
	go func() {
		err := wait(c, timeout)
		c.Close()
		done(err)
	}()
}

// Errors of attempts that this node could not make, for any reason and because
// it has no route.
var (
	errNotSent = errors.New("not sent")
	errNoRoute = errors.New("no route")
)

// replyOf returns what came back for an attempt with an error, nil for none.
// Errors other than those of answers are those of ICMP messages of routers, or
// of a neighbor that does not answer.
func replyOf(err error) Reply {
	switch {
	case err == nil:
		return Accepted
	case errors.Is(err, unix.ECONNREFUSED), errors.Is(err, unix.ECONNRESET):
		return Refused
	case errors.Is(err, errNoRoute):
		return NoRoute
	case errors.Is(err, errNotSent):
		return NotSent
	case errors.Is(err, os.ErrDeadlineExceeded):
		return Silence
	}
	return Unreachable
}

func resultOf(err error) eject.Result {
	switch replyOf(err) {
	case Accepted, Refused:
		return eject.Answered
	case NotSent, NoRoute:
		return eject.Failed
	}
	return eject.Lost
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

// begin begins a connection. It returns nil and the error of the attempt if it
// ends at once.
func begin(to netip.AddrPort) (*os.File, error) {
	if !Allowed(to.Addr()) {
		return nil, errNotSent
	}
	family, addr := address(to)
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, errors.Join(errNotSent, err)
	}
	if err = setOptions(fd); err == nil {
		err = unix.Connect(fd, addr)
	}
	if errors.Is(err, unix.EINPROGRESS) {
		return os.NewFile(uintptr(fd), "probe"), nil
	}
	unix.Close(fd)
	switch r := replyOf(err); {
	case r == Accepted || r == Refused:
		return nil, err
	case errors.Is(err, unix.ENETUNREACH), errors.Is(err, unix.EHOSTUNREACH):
		return nil, errors.Join(errNoRoute, err)
	}
	return nil, errors.Join(errNotSent, err)
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

// wait waits for the end of the attempt, and returns its error.
func wait(c *os.File, timeout time.Duration) error {
	raw, err := c.SyscallConn()
	if err == nil {
		err = c.SetWriteDeadline(time.Now().Add(timeout))
	}
	if err != nil {
		return errors.Join(errNotSent, err)
	}
	var ended error
	err = raw.Write(func(fd uintptr) (done bool) {
		done, ended = state(int(fd))
		return done
	})
	return errors.Join(err, ended)
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
