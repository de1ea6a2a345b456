package conntrack

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/nft/nfnetlink"
)

// Conn is a connection to the connection tracking of one network namespace.
// Only one goroutine may use it at a time.
type Conn struct {
	dumps  *nfnetlink.Socket // lists flows
	calls  *nfnetlink.Socket // deletes and counts flows, also during a dump
	routes *nfnetlink.Socket // looks up which addresses are local

	// received counts the flows that the kernel sent, including those that do
	// not match the filter.
	received int

	// challenges is nil without ChallengeClients.
	challenges *challenges

	requests []byte        // buffer of the deletions to send
	pending  []trackedFlow // buffer of the flows to delete
}

// receiveBuffer is the size of the receive buffers of the sockets. It is enough
// for two parts of a dump, and for the answers to one batch of deletions that
// all fail (768 bytes each, as the kernel counts).
const receiveBuffer = 512 << 10

// Open connects to the connection tracking of the calling thread's network
// namespace. It requires CAP_NET_ADMIN there.
func Open() (*Conn, error) {
	dumps, err1 := nfnetlink.Open(unix.NETLINK_NETFILTER, receiveBuffer)
	calls, err2 := nfnetlink.Open(unix.NETLINK_NETFILTER, receiveBuffer)
	routes, err3 := nfnetlink.Open(unix.NETLINK_ROUTE, receiveBuffer)
	c := &Conn{dumps: dumps, calls: calls, routes: routes}
	if err := errors.Join(err1, err2, err3); err != nil {
		return nil, errors.Join(fmt.Errorf("connect to connection tracking: %w", err), c.Close())
	}
	return c, nil
}

// Close closes the sockets. It must not be called during another call.
func (c *Conn) Close() error {
	errs := []error{c.challenges.close()}
	for _, s := range []*nfnetlink.Socket{c.dumps, c.calls, c.routes} {
		if s != nil {
			errs = append(errs, s.Close())
		}
	}
	return errors.Join(errs...)
}

// request sends a request, and calls each with the messages of the answer.
func request(
	s *nfnetlink.Socket, typ, flags uint16, family Family, body func(*nfnetlink.Writer),
	each func(nfnetlink.Message) error,
) error {
	w := nfnetlink.Writer{Seq: s.Seq}
	at := w.Begin(typ, flags, family, 0)
	body(&w)
	w.End(at)
	return s.Request(&w, each)
}
