package lab

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
	"golang.org/x/sys/unix"
)

// Server answers at one port of a namespace, in both families. A TCP server
// sends its Answer and then echoes. A UDP server answers each datagram, an
// SCTP server each INIT. A server ends with its namespace or with Close.
type Server struct {
	name string // of the namespace
	life context.Context
	end  context.CancelFunc
	done sync.WaitGroup
}

// ServeTCP starts a TCP server at all addresses of the namespace.
func (n *Namespace) ServeTCP(port uint16) (*Server, error) {
	return n.serve("tcp", port, func(s *Server, network string, at netip.AddrPort) (io.Closer, func(), error) {
		listener, err := n.Listen(network, at)
		return listener, func() { s.accept(listener) }, err
	})
}

// ServeUDP starts a UDP server at all addresses of the namespace.
func (n *Namespace) ServeUDP(port uint16) (*Server, error) {
	return n.serveDatagrams("udp", port, func(network string, at netip.AddrPort) (net.PacketConn, error) {
		return net.ListenUDP(network, net.UDPAddrFromAddrPort(at))
	}, func(s *Server, _ []byte, peer net.Addr) []byte {
		return s.answer(peer.(*net.UDPAddr).AddrPort()).line()
	})
}

// Serve starts TCP, UDP and SCTP servers at all addresses of the namespace.
func (n *Namespace) Serve(ports ...uint16) error {
	return each(ports, func(port uint16) error {
		_, errTCP := n.ServeTCP(port)
		_, errUDP := n.ServeUDP(port)
		_, errSCTP := n.ServeSCTP(port)
		return errors.Join(errTCP, errUDP, errSCTP)
	})
}

func (n *Namespace) serve(protocol string, port uint16,
	listen func(s *Server, network string, at netip.AddrPort) (io.Closer, func(), error),
) (*Server, error) {
	s := &Server{name: n.Name}
	s.life, s.end = context.WithCancel(n.life)
	for _, wildcard := range []netip.Addr{netip.IPv4Unspecified(), netip.IPv6Unspecified()} {
		socket, run, err := listen(s, networkOf(protocol, wildcard), netip.AddrPortFrom(wildcard, port))
		if err != nil {
			s.Close()
			return nil, fmt.Errorf("serve %s port %d in %s: %w", protocol, port, n.Name, err)
		}
		s.done.Go(run)
		s.done.Go(func() {
			<-s.life.Done()
			socket.Close()
		})
	}
	n.servers.Go(s.done.Wait)
	return s, nil
}

// Close ends the server and its connections. The port is closed when it
// returns.
func (s *Server) Close() {
	s.end()
	s.done.Wait()
}

func (s *Server) answer(source netip.AddrPort) Answer {
	return Answer{Server: s.name, Source: netip.AddrPortFrom(source.Addr().Unmap(), source.Port())}
}

func (s *Server) accept(listener net.Listener) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return // closed
		}
		s.done.Go(func() { s.serveConn(conn) })
	}
}

func (s *Server) serveConn(conn net.Conn) {
	defer conn.Close()
	defer context.AfterFunc(s.life, func() { conn.Close() })()
	if _, err := conn.Write(s.answer(conn.RemoteAddr().(*net.TCPAddr).AddrPort()).line()); err == nil {
		io.Copy(conn, conn) // until the client closes the connection
	}
}

// serveDatagrams starts a server that answers each datagram with a reply,
// unless that is nil.
func (n *Namespace) serveDatagrams(
	protocol string, port uint16, listen func(network string, at netip.AddrPort) (net.PacketConn, error),
	reply func(s *Server, datagram []byte, peer net.Addr) []byte,
) (*Server, error) {
	return n.serve(protocol, port, func(s *Server, network string, at netip.AddrPort) (io.Closer, func(), error) {
		socket, err := within(n, func() (net.PacketConn, error) { return listen(network, at) })
		if err != nil {
			return nil, nil, err
		}
		read, err := reader(socket, at.Addr().Is4())
		if err != nil {
			return nil, nil, errors.Join(fmt.Errorf("packet information: %w", err), socket.Close())
		}
		return socket, func() {
			for buffer := make([]byte, 2048); ; {
				length, peer, write, err := read(buffer)
				if errors.Is(err, net.ErrClosed) {
					return
				}
				if err != nil {
					continue // an ICMP error for an earlier answer
				}
				if answer := reply(s, buffer[:length], peer); answer != nil {
					write(answer) // if this fails the answer is a lost datagram
				}
			}
		}, nil
	})
}

// reader returns a function that reads a datagram and returns its sender, and a
// function that answers it. The answer comes from the address to which the
// datagram was sent: otherwise it would not belong to the flow.
func reader(socket net.PacketConn, is4 bool) (
	read func(buffer []byte) (length int, peer net.Addr, write func(answer []byte), err error), err error,
) {
	if is4 {
		conn := ipv4.NewPacketConn(socket)
		return func(buffer []byte) (int, net.Addr, func([]byte), error) {
			length, control, peer, err := conn.ReadFrom(buffer)
			return length, peer, func(b []byte) { conn.WriteTo(b, &ipv4.ControlMessage{Src: control.Dst}, peer) }, err
		}, conn.SetControlMessage(ipv4.FlagDst, true)
	}
	conn := ipv6.NewPacketConn(socket)
	return func(buffer []byte) (int, net.Addr, func([]byte), error) {
		length, control, peer, err := conn.ReadFrom(buffer)
		return length, peer, func(b []byte) { conn.WriteTo(b, &ipv6.ControlMessage{Src: control.Dst}, peer) }, err
	}, conn.SetControlMessage(ipv6.FlagDst, true)
}

// Few kernels have SCTP sockets, and translation does not need them. The lab
// uses raw sockets and the first two packets of an association: INIT, and
// INIT ACK with the Answer as State Cookie. Formats: RFC 9260, section 3.

// Chunk types, the parameter type State Cookie, and the tag of all packets.
const (
	sctpInit      = 1
	sctpInitAck   = 2
	sctpHeartbeat = 4
	sctpCookie    = 7
	sctpTag       = 0x6e667470
)

// sctpPacket is a packet of one chunk. An INIT ends before the cookie.
type sctpPacket struct {
	Source, Destination       uint16
	VerificationTag, Checksum uint32 // the tag is zero in an INIT
	Chunk, Flags              byte
	ChunkLen                  uint16
	InitiateTag, Window       uint32
	Outbound, Inbound         uint16 // streams
	FirstNumber               uint32
	CookieType, CookieLen     uint16
	Cookie                    [124]byte // longer than an Answer; a multiple of 4
}

const (
	sctpCommonLen = 12 // of the common header
	sctpInitLen   = 20 // of an INIT
)

// newSCTP returns a packet. Only an INIT ACK has a cookie.
func newSCTP(source, destination uint16, chunk byte, cookie []byte) []byte {
	p := sctpPacket{
		Source: source, Destination: destination, Chunk: chunk, ChunkLen: sctpInitLen,
		InitiateTag: sctpTag, Window: 1 << 16, Outbound: 1, Inbound: 1, FirstNumber: 1, CookieType: sctpCookie,
	}
	if chunk == sctpInitAck {
		p.VerificationTag, p.ChunkLen = sctpTag, uint16(binary.Size(p)-sctpCommonLen)
		p.CookieLen = p.ChunkLen - sctpInitLen
		copy(p.Cookie[:], cookie)
	}
	packet, err := binary.Append(nil, binary.BigEndian, p)
	if err != nil {
		panic(err) // the size of the type is fixed
	}
	packet = packet[:sctpCommonLen+p.ChunkLen]
	binary.LittleEndian.PutUint32(packet[8:], sctpChecksum(packet))
	return packet
}

// decodeSCTP decodes an INIT or INIT ACK of the lab with a valid checksum. The
// checksum can be zero too: a kernel with SCTP clears the field for a moment in
// the memory that it shares with raw sockets.
func decodeSCTP(packet []byte) (p sctpPacket, ok bool) {
	padded := append(slices.Clip(packet), make([]byte, binary.Size(p))...)
	if _, err := binary.Decode(padded, binary.BigEndian, &p); err != nil || len(packet) < sctpCommonLen+sctpInitLen {
		return p, false
	}
	valid := p.Checksum == 0 || binary.LittleEndian.Uint32(packet[8:]) == sctpChecksum(packet)
	return p, valid && len(packet) == sctpCommonLen+int(p.ChunkLen) && (p.Chunk == sctpInit || p.Chunk == sctpInitAck)
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
		if !ok || init.Chunk != sctpInit || init.Destination != port {
			return nil
		}
		source, _ := netip.AddrFromSlice(peer.(*net.IPAddr).IP)
		return newSCTP(port, init.Source, sctpInitAck, s.answer(netip.AddrPortFrom(source, init.Source)).line())
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
	for {
		_, err := c.IPConn.Write(newSCTP(c.local, c.remote, sctpInit, nil))
		if err == nil || c.concerns(err) {
			return len(p), err
		}
	}
}

// Heartbeat sends a HEARTBEAT on an SCTP flow. A server does not answer it.
func (c *Conn) Heartbeat() error {
	c.SetDeadline(time.Time{})
	s := c.Conn.(*sctpConn)
	_, err := s.IPConn.Write(newSCTP(s.local, s.remote, sctpHeartbeat, nil))
	return err
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
		if ok && packet.Chunk == sctpInitAck && packet.Source == c.remote && packet.Destination == c.local {
			return copy(p, bytes.TrimRight(packet.Cookie[:], "\x00")), nil
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
