package lab

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"net"
	"net/netip"

	"golang.org/x/sys/unix"
)

// Few kernels have SCTP sockets, and translation does not need them. The lab
// uses raw sockets and the first two packets of an association: INIT, and
// INIT ACK with the Answer as State Cookie. Formats: RFC 9260, section 3.

// Chunk types, the parameter type State Cookie, and the tag of all packets.
const (
	sctpInit    = 1
	sctpInitAck = 2
	sctpCookie  = 7
	sctpTag     = 0x6e667470
)

// sctpPacket is a packet of one chunk.
type sctpPacket struct {
	source, destination uint16
	chunk               byte   // its type
	cookie              []byte // of an INIT ACK
}

// sctpHeader is the common header, and an INIT or INIT ACK without parameters.
type sctpHeader struct {
	Source, Destination       uint16
	VerificationTag, Checksum uint32 // the tag is zero in an INIT
	Chunk, Flags              byte
	ChunkLen                  uint16
	InitiateTag, Window       uint32
	Outbound, Inbound         uint16 // streams
	FirstNumber               uint32
}

const (
	sctpCommonLen = 12 // of the common header
	sctpHeaderLen = 32
	sctpParamLen  = 4 // type and length of a parameter
)

func (p sctpPacket) encode() []byte {
	h := sctpHeader{
		Source: p.source, Destination: p.destination, Chunk: p.chunk, ChunkLen: sctpHeaderLen - sctpCommonLen,
		InitiateTag: sctpTag, Window: 1 << 16, Outbound: 1, Inbound: 1, FirstNumber: 1,
	}
	var cookie []byte
	if p.chunk == sctpInitAck {
		cookie = binary.BigEndian.AppendUint16(cookie, sctpCookie)
		cookie = binary.BigEndian.AppendUint16(cookie, uint16(sctpParamLen+len(p.cookie)))
		cookie = append(cookie, p.cookie...)
		h.VerificationTag, h.ChunkLen = sctpTag, h.ChunkLen+uint16(len(cookie))
		cookie = append(cookie, make([]byte, -len(cookie)&3)...) // a chunk ends at a multiple of 4
	}
	packet, err := binary.Append(nil, binary.BigEndian, h)
	if err != nil {
		panic(err) // the size of the type is fixed
	}
	packet = append(packet, cookie...)
	binary.LittleEndian.PutUint32(packet[8:], sctpChecksum(packet))
	return packet
}

// decodeSCTP decodes an INIT or INIT ACK of the lab with a valid checksum. The
// checksum can be zero too: a kernel with SCTP clears the field for a moment in
// the memory that it shares with raw sockets.
func decodeSCTP(packet []byte) (p sctpPacket, ok bool) {
	var h sctpHeader
	if _, err := binary.Decode(packet, binary.BigEndian, &h); err != nil {
		return p, false
	}
	if h.Checksum != 0 && binary.LittleEndian.Uint32(packet[8:]) != sctpChecksum(packet) {
		return p, false
	}
	p = sctpPacket{source: h.Source, destination: h.Destination, chunk: h.Chunk}
	const cookie = sctpHeaderLen + sctpParamLen
	if end := sctpCommonLen + int(h.ChunkLen); p.chunk == sctpInitAck && cookie <= end && end <= len(packet) {
		p.cookie = packet[cookie:end]
		return p, true
	}
	return p, p.chunk == sctpInit
}

// sctpChecksum returns the CRC32c of a packet with a zero checksum field (RFC
// 9260, appendix A). The packet contains it in little-endian order.
func sctpChecksum(packet []byte) uint32 {
	table := crc32.MakeTable(crc32.Castagnoli)
	sum := crc32.Update(0, table, packet[:8])
	sum = crc32.Update(sum, table, make([]byte, 4))
	return crc32.Update(sum, table, packet[sctpCommonLen:])
}

// ServeSCTP starts an SCTP server at all addresses of the namespace.
func (n *Namespace) ServeSCTP(port uint16) (*Server, error) {
	return n.serveDatagrams("sctp", port, func(_ string, at netip.AddrPort) (net.PacketConn, error) {
		return net.ListenIP(rawNetwork(at.Addr()), &net.IPAddr{IP: at.Addr().AsSlice()})
	}, func(s *Server, packet []byte, peer net.Addr) []byte {
		init, ok := decodeSCTP(packet)
		if !ok || init.chunk != sctpInit || init.destination != port {
			return nil
		}
		source, _ := netip.AddrFromSlice(peer.(*net.IPAddr).IP)
		return sctpPacket{
			source: init.destination, destination: init.source, chunk: sctpInitAck,
			cookie: s.answer(netip.AddrPortFrom(source, init.source)).line(),
		}.encode()
	})
}

func rawNetwork(addr netip.Addr) string { return networkOf("ip", addr) + ":132" }

// sctpConn is a flow: a Write sends an INIT, a Read returns the cookie of an
// INIT ACK. The kernel delivers the packets and errors of all flows to the
// same address.
type sctpConn struct {
	*net.IPConn
	local, remote uint16
}

func (c *sctpConn) Write(p []byte) (int, error) {
	init := sctpPacket{source: c.local, destination: c.remote, chunk: sctpInit}
	for {
		_, err := c.IPConn.Write(init.encode())
		if err == nil || c.concerns(err) {
			return len(p), err
		}
	}
}

func (c *sctpConn) Read(p []byte) (int, error) {
	buffer := make([]byte, 2048)
	for {
		length, _, err := c.ReadFromIP(buffer)
		if err != nil {
			if c.concerns(err) {
				return 0, err
			}
			continue
		}
		packet, ok := decodeSCTP(buffer[:length])
		if ok && packet.chunk == sctpInitAck && packet.source == c.remote && packet.destination == c.local {
			return copy(p, packet.cookie), nil
		}
	}
}

// concerns reports whether an error of the socket concerns this flow. A
// refusal does if the packet that it quotes, which the error queue has, is of
// the flow.
func (c *sctpConn) concerns(err error) bool {
	if !errors.Is(err, unix.ECONNREFUSED) {
		return true
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return true
	}
	ports := binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(nil, c.local), c.remote)
	quoted, control := make([]byte, 256), make([]byte, 256)
	err = raw.Control(func(fd uintptr) { unix.Recvmsg(int(fd), quoted, control, unix.MSG_ERRQUEUE) })
	return err != nil || bytes.HasPrefix(quoted, ports)
}
