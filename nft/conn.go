package nft

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/nft/nfnetlink"
)

// Conn is a netlink connection to nf_tables of one network namespace. It must
// not be used by several goroutines at the same time.
//
// The kernel processes a request while it is sent, so the answer is available
// when sending returns. Methods therefore wait only for the work of the
// kernel and for transactions of other programs that are in progress.
type Conn struct {
	socket *nfnetlink.Socket
	// inSnapshot is set while Snapshot calls its function.
	inSnapshot bool
}

// receiveBuffer is the size of the receive buffers of sockets. The kernel can
// answer each message of a batch with an error.
const receiveBuffer = 8 << 20

// Open connects to nf_tables in the network namespace of the calling thread.
// The connection stays with that namespace, whichever thread uses it. Reading
// and writing require CAP_NET_ADMIN in the namespace.
func Open() (*Conn, error) {
	s, err := nfnetlink.Open(unix.NETLINK_NETFILTER, receiveBuffer)
	if err != nil {
		return nil, err
	}
	s.Describe = describe
	return &Conn{socket: s}, nil
}

// Port returns the netlink port of the connection. A notify.Monitor reports the
// port from which each transaction was sent.
func (c *Conn) Port() (uint32, error) {
	sa, err := unix.Getsockname(c.socket.FD)
	if err != nil {
		return 0, fmt.Errorf("read port of netlink socket: %w", err)
	}
	return sa.(*unix.SockaddrNetlink).Pid, nil
}

// Close closes the connection. It does not change the ruleset.
func (c *Conn) Close() error { return c.socket.Close() }

// request sends one request to nf_tables and calls each with the attributes
// of every message of the answer. The error is ErrGeneration if the ruleset
// changed while the kernel assembled the answer.
func (c *Conn) request(
	typ, flags uint16, family Family, body func(w *messageWriter), each func(attributes []byte),
) error {
	if flags&unix.NLM_F_DUMP == 0 {
		flags |= unix.NLM_F_ACK // marks the end of the answer, as NLMSG_DONE does for dumps
	}
	w := newRequest(c.socket, typ, flags, family, body)
	err := c.socket.Request(&w.Writer, eachObject(each))
	if errors.Is(err, nfnetlink.ErrInterrupted) {
		return ErrGeneration
	}
	return err
}

// newRequest returns a request to nf_tables.
func newRequest(
	s *nfnetlink.Socket, typ, flags uint16, family Family, body func(w *messageWriter),
) (w messageWriter) {
	w.Seq = s.Seq
	at := w.beginNFT(typ, flags, family)
	if body != nil {
		body(&w)
	}
	w.End(at)
	return w
}

// eachObject returns a function that calls each with the attributes of messages
// of nf_tables.
func eachObject(each func(attributes []byte)) func(nfnetlink.Message) error {
	return func(msg nfnetlink.Message) error {
		if msg.Type()>>8 == unix.NFNL_SUBSYS_NFTABLES && len(msg) >= nfnetlink.HeaderLen {
			each(msg.Attributes())
		}
		return nil
	}
}
