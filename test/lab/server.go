package lab

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"net"
	"net/netip"
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
	namespace *Namespace
	sockets   []io.Closer
	done      sync.WaitGroup

	mu     sync.Mutex
	conns  map[net.Conn]struct{}
	closed bool
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
func (n *Namespace) Serve(port uint16) error {
	for _, serve := range []func(uint16) (*Server, error){n.ServeTCP, n.ServeUDP, n.ServeSCTP} {
		if _, err := serve(port); err != nil {
			return err
		}
	}
	return nil
}

func (n *Namespace) serve(protocol string, port uint16,
	listen func(s *Server, network string, at netip.AddrPort) (io.Closer, func(), error),
) (*Server, error) {
	s := &Server{namespace: n, conns: map[net.Conn]struct{}{}}
	for _, wildcard := range []netip.Addr{netip.IPv4Unspecified(), netip.IPv6Unspecified()} {
		socket, run, err := listen(s, networkOf(protocol, wildcard), netip.AddrPortFrom(wildcard, port))
		if err != nil {
			return nil, errors.Join(fmt.Errorf("serve %s port %d in %s: %w", protocol, port, n.Name, err), s.Close())
		}
		s.sockets = append(s.sockets, socket)
		s.done.Go(run)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.servers[s] = struct{}{}
	return s, nil
}

// Close ends the server and its connections. The port is closed when it
// returns.
func (s *Server) Close() error {
	s.namespace.mu.Lock()
	delete(s.namespace.servers, s)
	s.namespace.mu.Unlock()
	var errs []error
	for _, socket := range s.sockets {
		if err := socket.Close(); !errors.Is(err, net.ErrClosed) {
			errs = append(errs, err)
		}
	}
	s.mu.Lock()
	s.closed = true
	for conn := range s.conns {
		conn.Close()
	}
	s.mu.Unlock()
	s.done.Wait()
	return errors.Join(errs...)
}

func (s *Server) answer(source netip.AddrPort) Answer {
	return Answer{Server: s.namespace.Name, Source: netip.AddrPortFrom(source.Addr().Unmap(), source.Port())}
}

func (s *Server) accept(listener net.Listener) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return // closed
		}
		s.mu.Lock()
		if s.closed {
			conn.Close()
		} else {
			s.conns[conn] = struct{}{}
			s.done.Go(func() { s.serveConn(conn) })
		}
		s.mu.Unlock()
	}
}

func (s *Server) serveConn(conn net.Conn) {
	if _, err := conn.Write(s.answer(conn.RemoteAddr().(*net.TCPAddr).AddrPort()).line()); err == nil {
		io.Copy(conn, conn) // until the client closes the connection
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, conn)
	conn.Close()
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

// Heartbeat sends a HEARTBEAT on an SCTP flow. A server does not answer it.
func (c *Conn) Heartbeat() error {
	c.SetDeadline(time.Time{})
	s := c.Conn.(*sctpConn)
	_, err := s.IPConn.Write(sctpPacket{source: s.local, destination: s.remote, chunk: sctpHeartbeat}.encode())
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
