package lab

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
)

// TCPServer answers connections to a port of a namespace, in both families: one
// line that says who answers whom (see [Answer]), then everything it gets.
type TCPServer struct {
	namespace *Namespace
	listeners []net.Listener
	done      sync.WaitGroup

	mu     sync.Mutex
	conns  map[net.Conn]struct{}
	closed bool
}

// ServeTCP starts a server on the port, at all addresses of the namespace. It
// ends with Close or with the namespace.
func (n *Namespace) ServeTCP(port uint16) (*TCPServer, error) {
	s := &TCPServer{namespace: n, conns: map[net.Conn]struct{}{}}
	for _, wildcard := range []netip.Addr{netip.IPv4Unspecified(), netip.IPv6Unspecified()} {
		listener, err := n.Listen(networkOf("tcp", wildcard), netip.AddrPortFrom(wildcard, port))
		if err != nil {
			return nil, errors.Join(fmt.Errorf("serve TCP port %d in %s: %w", port, n.Name, err), s.Close())
		}
		s.listeners = append(s.listeners, listener)
		s.done.Go(func() { s.accept(listener) })
	}
	n.own(s)
	return s, nil
}

// Close ends the server and its connections. From then on the port is closed.
func (s *TCPServer) Close() error {
	s.namespace.disown(s)
	var errs []error
	for _, listener := range s.listeners {
		if err := listener.Close(); !errors.Is(err, net.ErrClosed) {
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

func (s *TCPServer) accept(listener net.Listener) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return // closed
		}
		if !s.add(conn) {
			conn.Close()
			return
		}
		s.done.Go(func() {
			defer s.remove(conn)
			s.serve(conn)
		})
	}
}

func (s *TCPServer) serve(conn net.Conn) {
	answer := Answer{Server: s.namespace.Name, Source: peerOf(conn)}
	if _, err := conn.Write(answer.line()); err != nil {
		return
	}
	io.Copy(conn, conn) // until the client goes
}

// add remembers a connection for Close; false when the server is closed.
func (s *TCPServer) add(conn net.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.conns[conn] = struct{}{}
	}
	return !s.closed
}

func (s *TCPServer) remove(conn net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, conn)
	conn.Close()
}

func peerOf(conn net.Conn) netip.AddrPort {
	peer := conn.RemoteAddr().(*net.TCPAddr).AddrPort()
	return netip.AddrPortFrom(peer.Addr().Unmap(), peer.Port())
}

// networkOf adds the family of an address to "tcp" or "udp".
func networkOf(protocol string, addr netip.Addr) string {
	if addr.Is4() {
		return protocol + "4"
	}
	return protocol + "6"
}
