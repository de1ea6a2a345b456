package lab

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"

	"golang.org/x/sys/unix"
)

// UDPServer answers every datagram to a port of a namespace, in both families,
// with one line that says who answers whom (see [Answer]).
type UDPServer struct {
	namespace *Namespace
	sockets   []*net.UDPConn
	done      sync.WaitGroup
}

// ServeUDP starts a server on the port, at all addresses of the namespace. It
// ends with Close or with the namespace.
func (n *Namespace) ServeUDP(port uint16) (*UDPServer, error) {
	s := &UDPServer{namespace: n}
	for _, wildcard := range []netip.Addr{netip.IPv4Unspecified(), netip.IPv6Unspecified()} {
		socket, err := n.listenAnswering(netip.AddrPortFrom(wildcard, port))
		if err != nil {
			return nil, errors.Join(fmt.Errorf("serve UDP port %d in %s: %w", port, n.Name, err), s.Close())
		}
		s.sockets = append(s.sockets, socket)
		s.done.Go(func() { s.serve(socket) })
	}
	n.own(s)
	return s, nil
}

// Close ends the server. From then on the port is closed.
func (s *UDPServer) Close() error {
	s.namespace.disown(s)
	var errs []error
	for _, socket := range s.sockets {
		if err := socket.Close(); !errors.Is(err, net.ErrClosed) {
			errs = append(errs, err)
		}
	}
	s.done.Wait()
	return errors.Join(errs...)
}

// listenAnswering opens a socket that tells at which of the namespace's addresses
// a datagram arrived: an answer from another one would not belong to its flow.
func (n *Namespace) listenAnswering(at netip.AddrPort) (*net.UDPConn, error) {
	socket, err := n.ListenUDP(networkOf("udp", at.Addr()), at)
	if err != nil {
		return nil, err
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return nil, errors.Join(err, socket.Close())
	}
	var failed error
	err = raw.Control(func(fd uintptr) {
		if at.Addr().Is4() {
			failed = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_PKTINFO, 1)
		} else {
			failed = unix.SetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_RECVPKTINFO, 1)
		}
	})
	if err := errors.Join(err, failed); err != nil {
		return nil, errors.Join(fmt.Errorf("packet information: %w", err), socket.Close())
	}
	return socket, nil
}

func (s *UDPServer) serve(socket *net.UDPConn) {
	datagram, control := make([]byte, 2048), make([]byte, 256)
	for {
		_, controlled, _, peer, err := socket.ReadMsgUDPAddrPort(datagram, control)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue // an ICMP error that an earlier answer met
		}
		answer := Answer{Server: s.namespace.Name, Source: netip.AddrPortFrom(peer.Addr().Unmap(), peer.Port())}
		// An answer that cannot be sent is a lost datagram.
		socket.WriteMsgUDPAddrPort(answer.line(), sourceControl(control[:controlled]), peer)
	}
}

// sourceControl turns the control message of a datagram that arrived into the
// one that sends the answer from the same address.
func sourceControl(received []byte) []byte {
	messages, err := unix.ParseSocketControlMessage(received)
	if err != nil {
		return nil
	}
	for _, message := range messages {
		switch {
		case message.Header.Level == unix.IPPROTO_IP && message.Header.Type == unix.IP_PKTINFO && len(message.Data) == unix.SizeofInet4Pktinfo:
			// struct in_pktinfo: interface index, local address, destination of the header
			return unix.PktInfo4(&unix.Inet4Pktinfo{Spec_dst: [4]byte(message.Data[4:8])})
		case message.Header.Level == unix.IPPROTO_IPV6 && message.Header.Type == unix.IPV6_PKTINFO && len(message.Data) == unix.SizeofInet6Pktinfo:
			// struct in6_pktinfo: destination of the header, interface index
			return unix.PktInfo6(&unix.Inet6Pktinfo{Addr: [16]byte(message.Data[:16])})
		}
	}
	return nil
}
