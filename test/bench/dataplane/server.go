package main

import (
	"errors"
	"fmt"
	"net/netip"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/test/bench/stage"
)

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
func listen(kind uintptr) (s *server, err error) {
	s = new(server)
	if s.socket, err = open(kind | unix.SOCK_NONBLOCK); err != nil {
		return nil, err
	}
	err = errors.Join(
		set(s.socket, unix.SOL_SOCKET, unix.SO_REUSEADDR, int32(1)),
		// The answer must come from the address of the request.
		set(s.socket, unix.IPPROTO_IP, unix.IP_PKTINFO, int32(1)),
		s.bind(sockaddr(netip.AddrPortFrom(netip.IPv4Unspecified(), stage.TargetPort))))
	if err == nil && kind == unix.SOCK_STREAM {
		const backlog = 4096
		if _, _, errno := unix.RawSyscall(unix.SYS_LISTEN, uintptr(s.socket), backlog, 0); errno != 0 {
			err = fmt.Errorf("listen: %w", errno)
		}
	}
	if err != nil {
		s.close()
		return nil, err
	}
	return newServer(s.socket), nil
}

// newServer returns a server for one client. Servers can share a socket.
func newServer(at socket) *server {
	s := &server{socket: at}
	s.iov = unix.Iovec{Base: &s.byte, Len: 1}
	return s
}

// acceptAll accepts and closes all waiting connections.
func (s *server) acceptAll() {
	for {
		one, errno := s.accept()
		if errno != 0 {
			return
		}
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

// answer answers one request, and reports whether there was one.
func (s *server) answer() bool {
	s.message = unix.Msghdr{
		Name: (*byte)(unsafe.Pointer(&s.from)), Namelen: unix.SizeofSockaddrInet4, Iov: &s.iov, Iovlen: 1,
		Control: (*byte)(unsafe.Pointer(&s.control)), Controllen: uint64(unsafe.Sizeof(s.control)),
	}
	_, _, errno := unix.RawSyscall(unix.SYS_RECVMSG, uintptr(s.socket), uintptr(unsafe.Pointer(&s.message)), 0)
	if errno != 0 {
		return false
	}
	// The answer goes from the address of the request, through any interface.
	(*unix.Inet4Pktinfo)(unsafe.Pointer(&s.control[2])).Ifindex = 0
	s.message.Flags = 0
	_, _, errno = unix.RawSyscall(unix.SYS_SENDMSG, uintptr(s.socket), uintptr(unsafe.Pointer(&s.message)), 0)
	return errno == 0
}
