package nft

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Tracer receives a TraceEvent for each rule that traced packets of a network
// namespace match (see SetTrace). It receives the events of all tables.
//
// Unlike a Monitor it does not make transactions slower.
type Tracer struct {
	fd  int
	buf []byte
}

// OpenTracer opens a Tracer in the network namespace of the calling thread. It
// requires CAP_NET_ADMIN there.
func OpenTracer() (*Tracer, error) {
	fd, err := openSocket()
	if err != nil {
		return nil, err
	}
	t := &Tracer{fd: fd, buf: make([]byte, receiveSize)}
	if err := t.setUp(); err != nil {
		return nil, errors.Join(fmt.Errorf("listen to traces of packets: %w", err), t.Close())
	}
	return t, nil
}

func (t *Tracer) setUp() error {
	if unix.SetsockoptInt(t.fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, receiveBuffer) != nil {
		if err := unix.SetsockoptInt(t.fd, unix.SOL_SOCKET, unix.SO_RCVBUF, receiveBuffer); err != nil {
			return err
		}
	}
	return unix.SetsockoptInt(t.fd, unix.SOL_NETLINK, unix.NETLINK_ADD_MEMBERSHIP, unix.NFNLGRP_NFTRACE)
}

// Close closes the Tracer.
func (t *Tracer) Close() error { return unix.Close(t.fd) }

// Receive waits up to a duration for events and returns them, in the order in
// which the kernel sent them. It returns none after the wait. Lost returns the
// number of events that are missing.
func (t *Tracer) Receive(wait time.Duration) ([]TraceEvent, error) {
	timeout := unix.NsecToTimeval(max(wait, time.Millisecond).Nanoseconds())
	if err := unix.SetsockoptTimeval(t.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &timeout); err != nil {
		return nil, os.NewSyscallError("setsockopt SO_RCVTIMEO", err)
	}
	for {
		n, _, err := unix.Recvfrom(t.fd, t.buf, 0)
		switch {
		case errors.Is(err, unix.ENOBUFS): // reported once, before the events that were not lost
			continue
		case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.EINTR):
			return nil, nil
		case err != nil:
			return nil, fmt.Errorf("receive traces of packets: %w", err)
		}
		return parseTraceEvents(t.buf[:n]), nil
	}
}

// Lost returns the number of messages that the kernel dropped because the
// receive buffer was full.
func (t *Tracer) Lost() (int, error) {
	var info [9]uint32 // SK_MEMINFO_VARS of linux/sock_diag.h
	const drops = 8
	size := uint32(unsafe.Sizeof(info))
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(t.fd), unix.SOL_SOCKET, unix.SO_MEMINFO,
		uintptr(unsafe.Pointer(&info)), uintptr(unsafe.Pointer(&size)), 0)
	if errno != 0 {
		return 0, os.NewSyscallError("getsockopt SO_MEMINFO", errno)
	}
	return int(info[drops]), nil
}

func parseTraceEvents(data []byte) (events []TraceEvent) {
	for len(data) >= nlmsgHeaderLen+nfgenmsgLen {
		n := int(binary.NativeEndian.Uint32(data[lengthAt:]))
		if n < nlmsgHeaderLen+nfgenmsgLen || n > len(data) {
			return events
		}
		if binary.NativeEndian.Uint16(data[typeAt:]) == nftMessage(unix.NFT_MSG_TRACE) {
			events = append(events, parseTraceEvent(data[:n]))
		}
		data = data[min(align4(n), len(data)):]
	}
	return events
}
