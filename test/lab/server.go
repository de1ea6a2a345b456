package lab

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"syscall"

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
	return n.serve("udp", port, func(s *Server, network string, at netip.AddrPort) (io.Closer, func(), error) {
		socket, err := listenDatagrams(n, at.Addr(), func() (*net.UDPConn, error) {
			return net.ListenUDP(network, net.UDPAddrFromAddrPort(at))
		})
		return socket, func() { s.answerDatagrams(socket) }, err
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

func (s *Server) answerDatagrams(socket *net.UDPConn) {
	datagram, control := make([]byte, 2048), make([]byte, 256)
	for {
		_, controlLen, _, peer, err := socket.ReadMsgUDPAddrPort(datagram, control)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err == nil { // otherwise an ICMP error for an earlier answer
			// If this fails the answer is a lost datagram.
			socket.WriteMsgUDPAddrPort(s.answer(peer).line(), replyControl(control[:controlLen]), peer)
		}
	}
}

// listenDatagrams opens a socket in the namespace that receives the
// destination address of each packet. An answer from another address would
// not belong to the flow.
func listenDatagrams[S interface {
	net.PacketConn
	syscall.Conn
}](n *Namespace, at netip.Addr, listen func() (S, error)) (socket S, err error) {
	if socket, err = within(n, listen); err != nil {
		return socket, err
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return socket, errors.Join(err, socket.Close())
	}
	option := [2]int{unix.IPPROTO_IPV6, unix.IPV6_RECVPKTINFO}
	if at.Is4() {
		option = [2]int{unix.IPPROTO_IP, unix.IP_PKTINFO}
	}
	if err := setOptions(raw, option); err != nil {
		return socket, errors.Join(fmt.Errorf("packet information: %w", err), socket.Close())
	}
	return socket, nil
}

// replyControl converts the control message of a received packet into one
// that sends the answer from the packet's destination.
func replyControl(received []byte) []byte {
	messages, err := unix.ParseSocketControlMessage(received)
	if err != nil {
		return nil
	}
	for _, m := range messages {
		level, kind, size := m.Header.Level, m.Header.Type, len(m.Data)
		switch {
		case level == unix.IPPROTO_IP && kind == unix.IP_PKTINFO && size == unix.SizeofInet4Pktinfo:
			// struct in_pktinfo: interface index, local address, header
			// destination
			return unix.PktInfo4(&unix.Inet4Pktinfo{Spec_dst: [4]byte(m.Data[4:8])})
		case level == unix.IPPROTO_IPV6 && kind == unix.IPV6_PKTINFO && size == unix.SizeofInet6Pktinfo:
			// struct in6_pktinfo: header destination, interface index
			return unix.PktInfo6(&unix.Inet6Pktinfo{Addr: [16]byte(m.Data[:16])})
		}
	}
	return nil
}
