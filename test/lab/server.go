package lab

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"

	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
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

// serveDatagrams starts a server that answers each datagram with a reply, unless
// that is nil.
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
