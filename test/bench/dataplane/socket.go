package main

import (
	"errors"
	"fmt"
	"net/netip"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/test/bench/stage"
)

// socket is a descriptor for IPv4. All calls that exchange packets are raw
// system calls: Go's scheduler takes no part in what is measured. None of them
// waits for long.
type socket int

const (
	// patience is how long a system call waits for a packet that should have
	// arrived.
	patience = 5 * time.Second
	// late is the time after which a connection has lost a packet: TCP repeats
	// the first one after a second.
	late = 500 * time.Millisecond
)

// open opens a socket of a type, SOCK_STREAM or SOCK_DGRAM.
func open(kind int) (socket, error) {
	fd, err := unix.Socket(unix.AF_INET, kind|unix.SOCK_CLOEXEC, 0)
	return socket(fd), err
}

func (s socket) close() { unix.Close(int(s)) }

// with makes a system call with an address: bind or connect.
func (s socket) with(what string, call uintptr, addr *unix.RawSockaddrInet4) error {
	_, _, errno := unix.RawSyscall(call, uintptr(s), uintptr(unsafe.Pointer(addr)), unsafe.Sizeof(*addr))
	if errno != 0 {
		return fmt.Errorf("%s %s: %w", what, addrPort(addr), errno)
	}
	return nil
}

// hasten makes connect give up after patience, and close abort a connection on
// both sides.
func (s socket) hasten() error {
	timeout := unix.NsecToTimeval(patience.Nanoseconds())
	return errors.Join(
		unix.SetsockoptLinger(int(s), unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1}),
		unix.SetsockoptTimeval(int(s), unix.SOL_SOCKET, unix.SO_SNDTIMEO, &timeout))
}

// transfer sends or receives one byte.
func (s socket) transfer(what string, call uintptr, b *byte, flags uintptr) error {
	_, _, errno := unix.RawSyscall6(call, uintptr(s), uintptr(unsafe.Pointer(b)), 1, flags, 0, 0)
	if errno != 0 {
		return fmt.Errorf("%s: %w", what, errno)
	}
	return nil
}

// sockaddr returns an address for system calls.
func sockaddr(at netip.AddrPort) *unix.RawSockaddrInet4 {
	out := &unix.RawSockaddrInet4{Family: unix.AF_INET, Addr: at.Addr().As4()}
	setPort(out, at.Port())
	return out
}

func setPort(addr *unix.RawSockaddrInet4, port uint16) { addr.Port = port<<8 | port>>8 }

func addrPort(addr *unix.RawSockaddrInet4) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4(addr.Addr), addr.Port<<8|addr.Port>>8)
}

// server is a socket that receives the packets for all endpoints' addresses, or
// a connection that it accepted. Clients do its work.
type server struct {
	socket
	// A control message: two words of struct cmsghdr, and struct in_pktinfo.
	control [4]uint64
	from    unix.RawSockaddrInet4
	byte    byte
	iov     unix.Iovec
	message unix.Msghdr
}

// listen returns a server for connections or datagrams. Its socket does not
// block.
func listen(kind int) (*server, error) {
	socket, err := open(kind | unix.SOCK_NONBLOCK)
	if err != nil {
		return nil, err
	}
	err = errors.Join(
		unix.SetsockoptInt(int(socket), unix.SOL_SOCKET, unix.SO_REUSEADDR, 1),
		// The answer must come from the address of the request.
		unix.SetsockoptInt(int(socket), unix.IPPROTO_IP, unix.IP_PKTINFO, 1),
		socket.with("bind", unix.SYS_BIND, sockaddr(netip.AddrPortFrom(netip.IPv4Unspecified(), stage.TargetPort))))
	if err == nil && kind == unix.SOCK_STREAM {
		const backlog = 4096
		err = unix.Listen(int(socket), backlog)
	}
	if err != nil {
		socket.close()
		return nil, err
	}
	return newServer(socket), nil
}

// newServer returns a server for one client. Servers can share a socket.
func newServer(at socket) *server {
	s := &server{socket: at}
	s.iov = unix.Iovec{Base: &s.byte, Len: 1}
	return s
}

// acceptAll accepts and closes all waiting connections.
func (s *server) acceptAll() {
	for one, errno := s.accept(); errno == 0; one, errno = s.accept() {
		one.close()
	}
}

// accept accepts a connection, whose socket does not block. It returns EAGAIN
// if none is waiting.
func (s *server) accept() (socket, syscall.Errno) {
	const flags = unix.SOCK_CLOEXEC | unix.SOCK_NONBLOCK
	fd, _, errno := unix.RawSyscall6(unix.SYS_ACCEPT4, uintptr(s.socket), 0, 0, flags, 0, 0)
	return socket(fd), errno
}

// answer answers one request, if there is one.
func (s *server) answer() {
	s.message = unix.Msghdr{
		Name: (*byte)(unsafe.Pointer(&s.from)), Namelen: unix.SizeofSockaddrInet4, Iov: &s.iov, Iovlen: 1,
		Control: (*byte)(unsafe.Pointer(&s.control)), Controllen: uint64(unsafe.Sizeof(s.control)),
	}
	_, _, errno := unix.RawSyscall(unix.SYS_RECVMSG, uintptr(s.socket), uintptr(unsafe.Pointer(&s.message)), 0)
	if errno != 0 {
		return
	}
	// The answer goes from the address of the request, through any interface.
	(*unix.Inet4Pktinfo)(unsafe.Pointer(&s.control[2])).Ifindex = 0
	s.message.Flags = 0
	unix.RawSyscall(unix.SYS_SENDMSG, uintptr(s.socket), uintptr(unsafe.Pointer(&s.message)), 0)
}

// The ports from which clients connect, one after the other: the kernel does
// not search for a port, and flows do not conflict.
const (
	firstPort = 1024
	ports     = 65536 - firstPort
)

// client makes connections, one at a time, or requests over one flow.
type client struct {
	from   []netip.Addr // in turn
	to     *unix.RawSockaddrInet4
	server *server
	made   int
	late   int // connections that took longer than late

	source *unix.RawSockaddrInet4
	byte   byte
}

func newClient(from []netip.Addr, to netip.AddrPort, server *server) *client {
	return &client{from: from, to: sockaddr(to), server: server, source: sockaddr(netip.AddrPortFrom(from[0], 0))}
}

// next returns a socket that is bound to the next address and port.
func (c *client) next(kind int) (socket, error) {
	s, err := open(kind)
	if err != nil {
		return s, err
	}
	c.source.Addr = c.from[c.made%len(c.from)].As4()
	setPort(c.source, uint16(firstPort+c.made%ports))
	c.made++
	if err = s.with("bind", unix.SYS_BIND, c.source); err != nil {
		s.close()
	}
	return s, err
}

// connectTCP makes a connection and ends it. It returns how long connect()
// took.
func (c *client) connectTCP() (time.Duration, error) {
	s, err := c.next(unix.SOCK_STREAM)
	if err != nil {
		return 0, err
	}
	hastened := s.hasten()
	began := time.Now()
	err = s.with("connect", unix.SYS_CONNECT, c.to)
	took := time.Since(began)
	s.close()
	c.server.acceptAll()
	if err = errors.Join(hastened, err); err != nil {
		return 0, fmt.Errorf("from %s: %w", addrPort(c.source), err)
	}
	if took > late {
		c.late++
	}
	return took, nil
}

// overFlow opens a flow, sends a first request over it and receives the answer,
// so that the flow is established. Then it calls f, if there is one, with the
// operation that does the same again. It returns how long the first request
// took, including the server's work.
func (c *client) overFlow(kind int, f func(request operation) error) (took time.Duration, err error) {
	s, err := c.next(kind)
	if err != nil {
		return 0, err
	}
	defer s.close()
	if kind == unix.SOCK_STREAM {
		err = s.hasten()
	}
	// Connecting UDP sets the address and the route; it sends no packet.
	if err := errors.Join(err, s.with("connect", unix.SYS_CONNECT, c.to)); err != nil {
		return 0, fmt.Errorf("from %s: %w", addrPort(c.source), err)
	}
	server := c.server
	if kind == unix.SOCK_STREAM {
		one, errno := server.accept()
		if errno != 0 {
			return 0, fmt.Errorf("accept from %s: %w", addrPort(c.source), errno)
		}
		server = newServer(one)
		defer server.close()
	}
	if took, err = c.exchange(s, server); err == nil && f != nil {
		err = f(func() (time.Duration, error) { return c.exchange(s, server) })
	}
	return took, err
}

// exchange sends a request of one byte from a connected socket and receives the
// answer. It returns how long that took, including the server's work.
func (c *client) exchange(s socket, server *server) (time.Duration, error) {
	began := time.Now()
	if err := s.transfer("send", unix.SYS_SENDTO, &c.byte, 0); err != nil {
		return 0, fmt.Errorf("to %s: %w", addrPort(c.to), err)
	}
	for {
		server.answer() // possibly another client's request; that client then answers this one
		err := s.transfer("receive", unix.SYS_RECVFROM, &c.byte, unix.MSG_DONTWAIT)
		took := time.Since(began)
		switch {
		case err == nil:
			return took, nil
		case !errors.Is(err, unix.EAGAIN) || took > patience:
			return 0, fmt.Errorf("from %s: %w", addrPort(c.to), err)
		}
	}
}
