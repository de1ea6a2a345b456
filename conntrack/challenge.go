package conntrack

import (
	"context"
	"encoding/binary"
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// challenges are segments that make the clients of deleted TCP connections send
// a packet at once. An idle client would send none, and a client without
// answers repeats its packets at growing intervals.
//
// A challenge is a SYN-ACK from the frontend with invalid numbers. A client
// that has the connection answers with an ACK that has valid ones (RFC 5961,
// section 4). So a challenge cannot end a connection that works. Connection
// tracking takes a SYN-ACK without an entry as invalid (tcp_new), makes no
// entry for it, and does not translate it.
type challenges struct {
	ipv4, ipv6 int     // raw sockets
	clients    []tuple // the original tuples of the deleted connections
}

const (
	// maxChallenges limits the clients of a pass that get a challenge (1 MB).
	maxChallenges = 1 << 14
	// challengeBatch is the number of challenges that are sent before a pause
	// of challengePause: at most 10,000 in a second.
	challengeBatch = 100
	challengePause = 10 * time.Millisecond
)

// ChallengeClients makes the clients of deleted TCP connections notice at once
// that their connections are gone. It requires CAP_NET_RAW in the network
// namespace of the calling thread. It must be called before NewCleaner.
func (c *Conn) ChallengeClients() error {
	ipv4, err := openRaw(unix.AF_INET)
	if err != nil {
		return err
	}
	ipv6, err := openRaw(unix.AF_INET6)
	if errors.Is(err, unix.EAFNOSUPPORT) {
		ipv6, err = -1, nil // a kernel without IPv6
	}
	if err != nil {
		return errors.Join(err, unix.Close(ipv4))
	}
	c.challenges = &challenges{ipv4: ipv4, ipv6: ipv6}
	return nil
}

// openRaw opens a socket that sends packets with their IP headers and receives
// none.
func openRaw(family int) (fd int, err error) {
	fd, err = unix.Socket(family, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.IPPROTO_RAW)
	return fd, os.NewSyscallError("open raw socket", err)
}

func (c *challenges) close() error {
	if c == nil {
		return nil
	}
	return errors.Join(closeRaw(c.ipv4), closeRaw(c.ipv6))
}

func closeRaw(fd int) error {
	if fd < 0 {
		return nil
	}
	return os.NewSyscallError("close", unix.Close(fd))
}

// add records deleted flows whose clients may have an established connection. A
// client that is connecting repeats its SYN soon.
func (c *challenges) add(flows []trackedFlow) {
	if c == nil {
		return
	}
	for _, f := range flows {
		if f.protocol == unix.IPPROTO_TCP && !f.connecting() && len(c.clients) < maxChallenges {
			c.clients = append(c.clients, f.original)
		}
	}
}

// send sends the challenges of a pass. It ignores errors: a client without a
// challenge notices at its next packet.
func (c *challenges) send(ctx context.Context) {
	if c == nil {
		return
	}
	for i, t := range c.clients {
		if i > 0 && i%challengeBatch == 0 && !sleep(ctx, challengePause) {
			break
		}
		packet := appendChallenge(nil, t)
		if client := t.src.Addr(); client.Is4() {
			unix.Sendto(c.ipv4, packet, 0, &unix.SockaddrInet4{Addr: client.As4()})
		} else {
			unix.Sendto(c.ipv6, packet, 0, &unix.SockaddrInet6{Addr: client.As16()})
		}
	}
	c.clients = c.clients[:0]
}

const (
	tcpHeaderLen  = 20
	ipv4HeaderLen = 20
	hopLimit      = 64
)

// appendChallenge appends the packet with the challenge for the client of a
// connection. The kernel writes the checksum of the IPv4 header.
func appendChallenge(b []byte, t tuple) []byte {
	if t.src.Addr().Is4() {
		b = append(b, 0x45, 0, 0, ipv4HeaderLen+tcpHeaderLen, 0, 0, 0x40, 0, hopLimit, unix.IPPROTO_TCP, 0, 0)
	} else {
		b = append(b, 0x60, 0, 0, 0, 0, tcpHeaderLen, unix.IPPROTO_TCP, hopLimit)
	}
	addrs := len(b)
	b = append(b, t.dst.Addr().AsSlice()...)
	b = append(b, t.src.Addr().AsSlice()...)
	header := len(b)
	b = binary.BigEndian.AppendUint16(b, t.dst.Port())
	b = binary.BigEndian.AppendUint16(b, t.src.Port())
	b = append(b, 0, 0, 0, 0, 0, 0, 0, 0)                  // sequence and acknowledgment numbers
	b = append(b, 5<<4, 1<<4|1<<1, 0, 0, 0, 0, 0, 0)       // SYN and ACK
	sum := uint32(unix.IPPROTO_TCP) + uint32(tcpHeaderLen) // of the pseudo header, and of the header
	for rest := b[addrs:]; len(rest) > 0; rest = rest[2:] {
		sum += uint32(binary.BigEndian.Uint16(rest))
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	binary.BigEndian.PutUint16(b[header+16:], ^uint16(sum))
	return b
}
