package lab

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"net"
	"net/netip"

	"golang.org/x/sys/unix"
)

// Few kernels have SCTP sockets, and translation does not need them. The lab
// uses raw sockets and the first two packets of an association: INIT, and
// INIT ACK with the Answer as State Cookie. Formats: RFC 9260, section 3.

// Chunk types.
const (
	sctpInit    = 1
	sctpInitAck = 2
)

const (
	sctpHeaderLen = 12
	sctpChunkLen  = 20 // of an INIT or INIT ACK without parameters
	sctpCookie    = 7  // the parameter type State Cookie
	sctpParamLen  = 4  // type and length of a parameter
	sctpTag       = 0x6e667470
)

// sctpPacket is a packet of one chunk.
type sctpPacket struct {
	source, destination uint16
	chunk               byte   // its type
	cookie              []byte // of an INIT ACK
}

func (p sctpPacket) encode() []byte {
	chunkLen := sctpChunkLen
	if p.chunk == sctpInitAck {
		chunkLen += sctpParamLen + len(p.cookie)
	}
	const alignment = 4
	packet := make([]byte, sctpHeaderLen+(chunkLen+alignment-1)/alignment*alignment)
	order := binary.BigEndian
	order.PutUint16(packet[0:], p.source)
	order.PutUint16(packet[2:], p.destination)
	chunk := packet[sctpHeaderLen:]
	chunk[0] = p.chunk
	order.PutUint16(chunk[2:], uint16(chunkLen))
	order.PutUint32(chunk[4:], sctpTag) // initiate tag
	order.PutUint32(chunk[8:], 65536)   // receiver window, bytes
	order.PutUint16(chunk[12:], 1)      // outbound streams
	order.PutUint16(chunk[14:], 1)      // inbound streams
	order.PutUint32(chunk[16:], 1)      // first transmission sequence number
	if p.chunk == sctpInitAck {
		order.PutUint32(packet[4:], sctpTag) // verification tag, zero in an INIT
		order.PutUint16(chunk[sctpChunkLen:], sctpCookie)
		order.PutUint16(chunk[sctpChunkLen+2:], uint16(sctpParamLen+len(p.cookie)))
		copy(chunk[sctpChunkLen+sctpParamLen:], p.cookie)
	}
	binary.LittleEndian.PutUint32(packet[8:], sctpChecksum(packet))
	return packet
}

// decodeSCTP decodes an INIT or INIT ACK of the lab with a valid checksum. The
// checksum can be zero too: a kernel with SCTP clears the field for a moment in
// the memory that it shares with raw sockets.
func decodeSCTP(packet []byte) (sctpPacket, bool) {
	if len(packet) < sctpHeaderLen+sctpChunkLen {
		return sctpPacket{}, false
	}
	if checksum := binary.LittleEndian.Uint32(packet[8:]); checksum != 0 && checksum != sctpChecksum(packet) {
		return sctpPacket{}, false
	}
	order, chunk := binary.BigEndian, packet[sctpHeaderLen:]
	p := sctpPacket{source: order.Uint16(packet[0:]), destination: order.Uint16(packet[2:]), chunk: chunk[0]}
	if p.chunk == sctpInit {
		return p, true
	}
	const cookie = sctpChunkLen + sctpParamLen
	chunkLen := int(order.Uint16(chunk[2:]))
	if p.chunk == sctpInitAck && cookie <= chunkLen && chunkLen <= len(chunk) {
		p.cookie = chunk[cookie:chunkLen]
		return p, true
	}
	return sctpPacket{}, false
}

// sctpChecksum returns the CRC32c of a packet with a zero checksum field (RFC
// 9260, appendix A). The packet contains it in little-endian order.
func sctpChecksum(packet []byte) uint32 {
	table := crc32.MakeTable(crc32.Castagnoli)
	sum := crc32.Update(0, table, packet[:8])
	sum = crc32.Update(sum, table, make([]byte, 4))
	return crc32.Update(sum, table, packet[sctpHeaderLen:])
}

// ServeSCTP starts an SCTP server at all addresses of the namespace.
func (n *Namespace) ServeSCTP(port uint16) (*Server, error) {
	return n.serve("sctp", port, func(s *Server, _ string, at netip.AddrPort) (io.Closer, func(), error) {
		socket, err := listenDatagrams(n, at.Addr(), func() (*net.IPConn, error) {
			return net.ListenIP(rawNetwork(at.Addr()), &net.IPAddr{IP: at.Addr().AsSlice()})
		})
		return socket, func() { s.answerInits(socket, at) }, err
	})
}

func rawNetwork(addr netip.Addr) string { return networkOf("ip", addr) + ":132" }

func (s *Server) answerInits(socket *net.IPConn, at netip.AddrPort) {
	buffer, control := make([]byte, 2048), make([]byte, 256)
	for {
		length, controlLen, _, peer, err := socket.ReadMsgIP(buffer, control)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		payload := buffer[:length]
		if at.Addr().Is4() && length > 0 {
			payload = payload[min(length, int(payload[0]&0xf)*4):] // without the IP header
		}
		init, ok := decodeSCTP(payload)
		if err != nil || !ok || init.chunk != sctpInit || init.destination != at.Port() {
			continue
		}
		source, _ := netip.AddrFromSlice(peer.IP)
		answer := sctpPacket{
			source: init.destination, destination: init.source, chunk: sctpInitAck,
			cookie: s.answer(netip.AddrPortFrom(source, init.source)).line(),
		}
		socket.WriteMsgIP(answer.encode(), replyControl(control[:controlLen]), peer)
	}
}

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
