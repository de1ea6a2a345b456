package lab

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// SCTPEvent is what a packet that arrived says about SCTP.
type SCTPEvent int

// The events.
const (
	// SCTPInit: somebody begins an association.
	SCTPInit SCTPEvent = iota + 1
	// SCTPAbort: somebody refuses or ends one.
	SCTPAbort
	// SCTPPortUnreachable: an ICMP or ICMPv6 port unreachable answers a packet
	// that was sent from here.
	SCTPPortUnreachable
)

// String returns the event's name.
func (e SCTPEvent) String() string {
	switch e {
	case SCTPInit:
		return "INIT"
	case SCTPAbort:
		return "ABORT"
	case SCTPPortUnreachable:
		return "port unreachable"
	}
	return fmt.Sprintf("SCTP event %d", int(e))
}

// SCTPPacket is a packet that arrived in a namespace.
type SCTPPacket struct {
	Event SCTPEvent
	// Source and Destination are the packet's, or for SCTPPortUnreachable those
	// of the packet that it answers.
	Source, Destination netip.AddrPort
	// ChecksumValid: the SCTP checksum is right. Always false for
	// SCTPPortUnreachable, which carries a part of the packet only.
	ChecksumValid bool
}

// SCTPCapture sees the packets that arrive at the interfaces of a namespace.
type SCTPCapture struct {
	namespace *Namespace
	file      *os.File
}

// CaptureSCTP starts to capture: packets that arrive after it returned are seen.
// It ends with Close or with the namespace.
func (n *Namespace) CaptureSCTP() (*SCTPCapture, error) {
	fd, err := within(n, func() (int, error) {
		// Cooked packets (SOCK_DGRAM) begin with the network header. The protocol
		// is given in network byte order.
		const everyProtocol = unix.ETH_P_ALL<<8 | unix.ETH_P_ALL>>8
		return unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, everyProtocol&0xffff)
	})
	if err != nil {
		return nil, fmt.Errorf("capture in %s: packet socket: %w", n.Name, err)
	}
	c := &SCTPCapture{namespace: n, file: os.NewFile(uintptr(fd), "capture in "+n.Name)}
	n.own(c)
	return c, nil
}

// Close ends the capture.
func (c *SCTPCapture) Close() error {
	c.namespace.disown(c)
	if err := c.file.Close(); !errors.Is(err, os.ErrClosed) {
		return err
	}
	return nil
}

// Next waits for the next packet that says something about SCTP. The error is
// os.ErrDeadlineExceeded when the context ends before one arrives.
func (c *SCTPCapture) Next(ctx context.Context) (SCTPPacket, error) {
	if err := c.file.SetReadDeadline(time.Time{}); err != nil {
		return SCTPPacket{}, err
	}
	stop := context.AfterFunc(ctx, func() { c.file.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	buffer := make([]byte, 2048)
	for {
		length, arrived, err := c.receive(buffer)
		if err != nil {
			return SCTPPacket{}, fmt.Errorf("%s: %w", c.file.Name(), err)
		}
		if packet, ok := parseSCTP(buffer[:length]); arrived && ok {
			return packet, nil
		}
	}
}

// receive reads one packet and tells whether it arrived (or was sent from here).
func (c *SCTPCapture) receive(buffer []byte) (length int, arrived bool, err error) {
	raw, err := c.file.SyscallConn()
	if err != nil {
		return 0, false, err
	}
	var sender unix.Sockaddr
	var failed error
	err = raw.Read(func(fd uintptr) bool {
		length, sender, failed = unix.Recvfrom(int(fd), buffer, 0)
		return failed != unix.EAGAIN
	})
	if err := errors.Join(err, failed); err != nil {
		return 0, false, err
	}
	link, ok := sender.(*unix.SockaddrLinklayer)
	return length, ok && link.Pkttype != unix.PACKET_OUTGOING, nil
}
