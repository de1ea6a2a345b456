package conntrack

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// Conn talks to the connection tracking of one network namespace. It is for one goroutine at a time, except that
// [Conn.Delete] may be called within the loop over [Conn.Flows].
type Conn struct {
	dumps  *socket // asks for flows
	calls  *socket // deletes and counts them, also while a dump is under way
	routes *socket // asks which addresses are local

	// dumping is set while a dump has not been read to its end: the kernel refuses the next one with EBUSY.
	dumping bool
	// received counts the flows that the kernel sent, before the filter is applied here.
	received int

	requests []byte // buffer of the deletions to send
	pending  []Flow // buffer of the flows to delete
}

// Open connects to the connection tracking of the calling thread's network namespace. It needs CAP_NET_ADMIN there.
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

// answerLen is the buffer for single answers.
const answerLen = 8 << 10

// Close closes the sockets. No call may be under way.
func (c *Conn) Close() error {
	var errs []error
	for _, s := range []*socket{c.dumps, c.calls, c.routes} {
		if s != nil {
			errs = append(errs, s.close())
		}
	}
	return errors.Join(errs...)
}
