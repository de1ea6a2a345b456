package main

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
)

// The ports from which clients connect, one after the other: the kernel need not look for one, and no flow meets another.
const (
	firstPort = 1024
	ports     = 65536 - firstPort
)

// client makes connections, one at a time.
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
	if err := s.bind(c.source); err != nil {
		s.close()
		return s, err
	}
	return s, nil
}

// connectTCP makes a connection and ends it. It returns how long connect() took.
func (c *client) connectTCP() (time.Duration, error) {
	s, err := c.next(unix.SOCK_STREAM)
	if err != nil {
		return 0, err
	}
	if err := errors.Join(s.abort(), s.limit(unix.SO_SNDTIMEO)); err != nil {
		s.close()
		return 0, err
	}
	began := time.Now()
	err = s.connect(c.to)
	took := time.Since(began)
	s.close()
	c.server.accept()
	if err != nil {
		return 0, fmt.Errorf("from %s: %w", addrPort(c.source), err)
	}
	return took, nil
}

// exchangeUDP sends a datagram and waits for the answer. It returns how long that took, with what the server does.
func (c *client) exchangeUDP() (time.Duration, error) {
	s, err := c.next(unix.SOCK_DGRAM)
	if err != nil {
		return 0, err
	}
	defer s.close()
	if err := s.connect(c.to); err != nil { // remembers the address and the route; nothing is sent
		return 0, err
	}
	began := time.Now()
	if err := s.send(&c.byte); err != nil {
		return 0, fmt.Errorf("to %s: %w", addrPort(c.to), err)
	}
	for {
		c.server.answer() // perhaps that of another client, which then answers ours
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
