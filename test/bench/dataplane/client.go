package main

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
)

// The ports from which clients connect, one after the other: the kernel does
// not search for a port, and flows do not conflict.
const (
	firstPort = 1024
	ports     = 65536 - firstPort
)

// client makes connections, one at a time, or requests over one flow.
type client struct {
	from   []netip.Addr // in turn
	to     *unix.RawSockaddrInet4
	server *server
	made   int

	source *unix.RawSockaddrInet4
	byte   byte
}

func newClient(from []netip.Addr, to netip.AddrPort, server *server) *client {
	return &client{from: from, to: sockaddr(to), server: server, source: sockaddr(netip.AddrPortFrom(from[0], 0))}
}

// next returns a socket that is bound to the next address and port.
func (c *client) next(kind uintptr) (socket, error) {
	s, err := open(kind)
	if err != nil {
		return s, err
	}
	c.source.Addr = c.from[c.made%len(c.from)].As4()
	setPort(c.source, uint16(firstPort+c.made%ports))
	c.made++
	if err = s.bind(c.source); err != nil {
		s.close()
	}
	return s, err
}

// connectTCP makes a connection and ends it. It returns how long connect()
// took.
func (c *client) connectTCP() (time.Duration, error) {
	s, err := c.next(unix.SOCK_STREAM)
	if err != nil {
		return 0, err
	}
	hastened := s.hasten()
	began := time.Now()
	err = s.connect(c.to)
	took := time.Since(began)
	s.close()
	c.server.acceptAll()
	if err = errors.Join(hastened, err); err != nil {
		return 0, fmt.Errorf("from %s: %w", addrPort(c.source), err)
	}
	return took, nil
}

// exchangeUDP sends a request from a new socket and receives the answer. It
// returns how long that took, including the server's work.
func (c *client) exchangeUDP() (time.Duration, error) {
	s, err := c.next(unix.SOCK_DGRAM)
	if err != nil {
		return 0, err
	}
	defer s.close()
	if err := s.connect(c.to); err != nil { // sets the address and the route; sends no packet
		return 0, err
	}
	return c.exchange(s, c.server)
}

// overFlow creates a flow, sends a first request over it and receives the
// answer, so that the flow is established. Then it calls f with the operation
// that does the same again.
func (c *client) overFlow(kind uintptr, f func(request operation) error) error {
	s, err := c.next(kind)
	if err != nil {
		return err
	}
	defer s.close()
	if err := errors.Join(s.hasten(), s.connect(c.to)); err != nil {
		return fmt.Errorf("from %s: %w", addrPort(c.source), err)
	}
	server := c.server
	if kind == unix.SOCK_STREAM {
		one, errno := server.accept()
		if errno != 0 {
			return fmt.Errorf("accept from %s: %w", addrPort(c.source), errno)
		}
		server = newServer(one)
		defer server.close()
	}
	request := func() (time.Duration, error) { return c.exchange(s, server) }
	if _, err := request(); err != nil {
		return err
	}
	return f(request)
}

// exchange sends a request of one byte from a connected socket and receives the
// answer. It returns how long that took, including the server's work.
func (c *client) exchange(s socket, server *server) (time.Duration, error) {
	began := time.Now()
	if err := s.send(&c.byte); err != nil {
		return 0, fmt.Errorf("to %s: %w", addrPort(c.to), err)
	}
	for {
		server.answer() // possibly another client's request; that client then answers this one
		err := s.receive(&c.byte, unix.MSG_DONTWAIT)
		took := time.Since(began)
		switch {
		case err == nil:
			return took, nil
		case !errors.Is(err, unix.EAGAIN) || took > patience:
			return 0, fmt.Errorf("from %s: %w", addrPort(c.to), err)
		}
	}
}
