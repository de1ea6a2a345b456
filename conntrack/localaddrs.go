package conntrack

import (
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"
)

// lookUpLocal reports whether the kernel delivers packets to addr locally.
// Like a rule with `fib daddr type local`, it looks the address up in the
// routing tables (RTM_GETROUTE), so an address with only a local route is
// local, too.
func (c *Conn) lookUpLocal(addr netip.Addr) (bool, error) {
	seq := c.routes.nextSeq()
	if err := c.routes.send(appendRouteRequest(nil, seq, addr)); err != nil {
		return false, fmt.Errorf("look up the route to %v: %w", addr, err)
	}
	for {
		b, err := c.routes.receive()
		if err != nil {
			return false, fmt.Errorf("look up the route to %v: %w", addr, err)
		}
		h, payload, _, err := nextMessage(b)
		switch {
		case err != nil:
			return false, fmt.Errorf("look up the route to %v: %w", addr, err)
		case h.Seq != seq:
			continue // an answer to an earlier request that was abandoned
		case h.Type == unix.NLMSG_ERROR:
			return false, routeError(addr, messageError(payload))
		case h.Type == unix.RTM_NEWROUTE && len(payload) >= unix.SizeofRtMsg:
			return payload[7] == unix.RTN_LOCAL, nil // rtm_type
		}
	}
}

// routeError returns an error of the kernel, except nil if no route exists.
func routeError(addr netip.Addr, err error) error {
	for _, none := range []error{unix.ENETUNREACH, unix.EHOSTUNREACH, unix.EACCES, unix.EINVAL} {
		if errors.Is(err, none) {
			return nil
		}
	}
	return fmt.Errorf("look up the route to %v: %w", addr, err)
}

// appendRouteRequest appends an RTM_GETROUTE request for one destination.
func appendRouteRequest(b []byte, seq uint32, addr netip.Addr) []byte {
	start := len(b)
	b = appendMessage(b, header{Type: unix.RTM_GETROUTE, Flags: unix.NLM_F_REQUEST, Seq: seq}, familyOf(addr))
	// struct rtmsg is 8 bytes longer than struct nfgenmsg, and starts with
	// the family and the length of the prefix.
	b[len(b)-3] = uint8(addr.BitLen())
	b = append(b, make([]byte, unix.SizeofRtMsg-genHeaderLen)...)
	return endMessage(appendAddr(b, unix.RTA_DST, unix.RTA_DST, addr), start)
}

// localAddrs caches for the duration of one pass which addresses are local.
type localAddrs struct {
	conn  *Conn
	known map[netip.Addr]bool
	err   error // of the lookup that failed
}

// maxLocalAddrs bounds the memory for known addresses.
const maxLocalAddrs = 4096

// contains looks up each address once. If a lookup fails, the pass is
// retried later. For the rest of the pass, the addresses that are not known
// yet count as not local, so their flows stay. Further lookups would fail,
// too, and each can take as long as answerTimeout.
func (l *localAddrs) contains(addr netip.Addr) bool {
	local, ok := l.known[addr]
	if ok || l.err != nil {
		return local
	}
	if local, l.err = l.conn.lookUpLocal(addr); l.err != nil {
		return false
	}
	if l.known == nil || len(l.known) >= maxLocalAddrs {
		l.known = make(map[netip.Addr]bool)
	}
	l.known[addr] = local
	return local
}
