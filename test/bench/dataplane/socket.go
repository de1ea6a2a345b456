package main

import (
	"errors"
	"fmt"
	"net/netip"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// socket is a descriptor for IPv4. All its calls are raw system calls: Go's
// scheduler takes no part in what is measured. None of them waits for long.
type socket int

// patience is how long a system call waits for a packet that should have
// arrived.
const patience = 500 * time.Millisecond

// open opens a socket of a type, SOCK_STREAM or SOCK_DGRAM.
func open(kind uintptr) (socket, error) {
	fd, _, errno := unix.RawSyscall(unix.SYS_SOCKET, unix.AF_INET, kind|unix.SOCK_CLOEXEC, 0)
	if errno != 0 {
		return -1, fmt.Errorf("socket: %w", errno)
	}
	return socket(fd), nil
}

func (s socket) close() { unix.RawSyscall(unix.SYS_CLOSE, uintptr(s), 0, 0) }

func (s socket) bind(to *unix.RawSockaddrInet4) error { return s.with("bind", unix.SYS_BIND, to) }

func (s socket) connect(to *unix.RawSockaddrInet4) error {
	return s.with("connect", unix.SYS_CONNECT, to)
}

func (s socket) with(what string, call uintptr, addr *unix.RawSockaddrInet4) error {
	_, _, errno := unix.RawSyscall(call, uintptr(s), uintptr(unsafe.Pointer(addr)), unsafe.Sizeof(*addr))
	if errno != 0 {
		return fmt.Errorf("%s %s: %w", what, addrPort(addr), errno)
	}
	return nil
}

// set sets an option to a value of any size.
func set[T any](s socket, level, name uintptr, value T) error {
	size := unsafe.Sizeof(value)
	_, _, errno := unix.RawSyscall6(
		unix.SYS_SETSOCKOPT, uintptr(s), level, name, uintptr(unsafe.Pointer(&value)), size, 0)
	if errno != 0 {
		return fmt.Errorf("socket option %d: %w", name, errno)
	}
	return nil
}

// hasten makes connect give up after patience, and close abort a connection on
// both sides.
func (s socket) hasten() error {
	timeout := unix.NsecToTimeval(patience.Nanoseconds())
	return errors.Join(
		set(s, unix.SOL_SOCKET, unix.SO_LINGER, unix.Linger{Onoff: 1}),
		set(s, unix.SOL_SOCKET, unix.SO_SNDTIMEO, timeout))
}

// send sends one byte.
func (s socket) send(b *byte) error { return s.transfer("send", unix.SYS_SENDTO, b, 0) }

// receive receives one byte.
func (s socket) receive(b *byte, flags uintptr) error {
	return s.transfer("receive", unix.SYS_RECVFROM, b, flags)
}

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
