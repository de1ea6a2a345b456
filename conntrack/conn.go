package conntrack

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// Conn is a connection to the connection tracking of one network namespace.
// Only one goroutine may use it at a time.
type Conn struct {
	dumps  *socket // lists flows
	calls  *socket // deletes and counts flows, also during a dump
	routes *socket // looks up which addresses are local

	// dumping is set until a dump has been read to its end. Until then, the
	// kernel refuses the next dump with EBUSY.
	dumping bool
	// received counts the flows that the kernel sent, including those that do
	// not match the filter.
	received int

	// challenges is nil without ChallengeClients.
	challenges *challenges

	requests []byte        // buffer of the deletions to send
	pending  []trackedFlow // buffer of the flows to delete
}

// Open connects to the connection tracking of the calling thread's network
// namespace. It requires CAP_NET_ADMIN there.
func Open() (*Conn, error) {
	c := &Conn{}
	for _, s := range []struct {
		socket           **socket
		protocol, bufLen int
	}{
		{&c.dumps, unix.NETLINK_NETFILTER, receiveLen},
		{&c.calls, unix.NETLINK_NETFILTER, answerLen},
		{&c.routes, unix.NETLINK_ROUTE, answerLen},
	} {
		opened, err := openSocket(s.protocol, s.bufLen)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("open conntrack socket: %w", err), c.Close())
		}
		*s.socket = opened
	}
	return c, nil
}

// answerLen is the size of the buffer for single answers.
const answerLen = 8 << 10

// Close closes the sockets. It must not be called during another call.
func (c *Conn) Close() error {
	errs := []error{c.challenges.close()}
	for _, s := range []*socket{c.dumps, c.calls, c.routes} {
		if s != nil {
			errs = append(errs, s.close())
		}
	}
	return errors.Join(errs...)
}
