package lab

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"net/netip"

	"golang.org/x/sys/unix"
)

// SCTP packets are made by hand: most kernels that the tests meet have no SCTP
// sockets, and forwarding and translating needs none. Formats: RFC 9260, section 3.

// SCTP chunk types (RFC 9260, section 3.2).
const (
	sctpInit  = 1
	sctpAbort = 6
)

const (
	sctpHeaderLen = 12
	sctpInitLen   = 20
)

// SendSCTPInit sends one INIT chunk, the first packet of an SCTP association,
// from the namespace. A source without address leaves that to the kernel. That
// the namespace's own packet filter drops or rejects it is no error: what comes
// back tells.
func (n *Namespace) SendSCTPInit(from, to netip.AddrPort) error {
	err := n.Do(func() error {
		return sendRaw(unix.IPPROTO_SCTP, from.Addr(), to.Addr(), sctpInitPacket(from.Port(), to.Port()))
	})
	if err != nil && !errors.Is(err, unix.EPERM) {
		return fmt.Errorf("send SCTP INIT from %s to %s: %w", n.Name, to, err)
	}
	return nil
}

// sendRaw sends one packet, for which the kernel makes the IP header.
func sendRaw(protocol int, from, to netip.Addr, payload []byte) error {
	family, destination := unix.AF_INET6, sockaddr(to)
	if to.Is4() {
		family = unix.AF_INET
	}
	fd, err := unix.Socket(family, unix.SOCK_RAW|unix.SOCK_CLOEXEC, protocol)
	if err != nil {
		return fmt.Errorf("raw socket: %w", err)
	}
	defer unix.Close(fd)
	if from.IsValid() && !from.IsUnspecified() {
		if err := unix.Bind(fd, sockaddr(from)); err != nil {
			return fmt.Errorf("bind to %s: %w", from, err)
		}
	}
	return unix.Sendto(fd, payload, 0, destination)
}

func sockaddr(addr netip.Addr) unix.Sockaddr {
	if addr.Is4() {
		return &unix.SockaddrInet4{Addr: addr.As4()}
	}
	return &unix.SockaddrInet6{Addr: addr.As16()}
}

// sctpInitPacket makes an SCTP packet of one INIT chunk without parameters.
func sctpInitPacket(source, destination uint16) []byte {
	packet := make([]byte, sctpHeaderLen+sctpInitLen)
	binary.BigEndian.PutUint16(packet[0:], source)
	binary.BigEndian.PutUint16(packet[2:], destination)
	// The verification tag (4 bytes) of an INIT is zero.
	chunk := packet[sctpHeaderLen:]
	chunk[0] = sctpInit
	binary.BigEndian.PutUint16(chunk[2:], sctpInitLen)
	binary.BigEndian.PutUint32(chunk[4:], 0x6e667470) // initiate tag: anything but zero
	binary.BigEndian.PutUint32(chunk[8:], 65536)      // receiver window, bytes
	binary.BigEndian.PutUint16(chunk[12:], 1)         // outbound streams
	binary.BigEndian.PutUint16(chunk[14:], 1)         // inbound streams
	binary.BigEndian.PutUint32(chunk[16:], 1)         // first transmission sequence number
	binary.LittleEndian.PutUint32(packet[8:], sctpChecksum(packet))
	return packet
}

// sctpChecksum computes the CRC32c of a packet as if its checksum field were
// zero (RFC 9260, appendix A). On the wire it has its low byte first.
func sctpChecksum(packet []byte) uint32 {
	table := crc32.MakeTable(crc32.Castagnoli)
	sum := crc32.Update(0, table, packet[:8])
	sum = crc32.Update(sum, table, make([]byte, 4))
	return crc32.Update(sum, table, packet[sctpHeaderLen:])
}
