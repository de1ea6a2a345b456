package conntrack

import (
	"errors"
	"fmt"
	"iter"
	"log/slog"

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
	dumps.Describe, calls.Describe = describe, describe
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

const (
	messageGetStats       = unix.NFNL_SUBSYS_CTNETLINK<<8 | 5 // IPCTNL_MSG_CT_GET_STATS
	ctaStatsGlobalEntries = 1
)

// Entries returns the number of flows of all protocols in the table
// (net.netfilter.nf_conntrack_count).
func (c *Conn) Entries() (entries int, err error) {
	found := false
	nothing := func(*nfnetlink.Writer) {}
	err = request(c.calls, messageGetStats, unix.NLM_F_ACK, 0, nothing, func(msg nfnetlink.Message) error {
		n := nfnetlink.Attr(msg.Attributes(), ctaStatsGlobalEntries)
		entries, found = int(nfnetlink.Uint32(n)), n != nil
		return nil
	})
	if err == nil && !found {
		err = nfnetlink.ErrIncomplete
	}
	if err != nil {
		return 0, fmt.Errorf("count flows: %w", err)
	}
	return entries, nil
}

// errStopped ends a dump after the caller left the loop, errLimit at the limit
// of its selection.
var (
	errStopped = errors.New("stopped")
	errLimit   = errors.New("limit reached")
)

// dropDump drops the rest of a dump with its socket: only then does the kernel
// end it.
func (c *Conn) dropDump() error {
	next, err := nfnetlink.Open(unix.NETLINK_NETFILTER, receiveBuffer)
	if err != nil {
		return err
	}
	next.Describe = c.dumps.Describe
	last := c.dumps
	c.dumps = next
	return last.Close()
}

// listFlows returns an iterator over the flows of a selection. It
// yields each flow as the kernel sends it, so memory use does not depend on
// the size of the table. A flow that exists during the whole dump is yielded
// at least once. It may be yielded twice if other flows are deleted
// meanwhile. It may be missing if the kernel resizes its hash table
// meanwhile (a write to net.netfilter.nf_conntrack_buckets).
//
// An error is yielded last, with a zero flow: the error of a system call, or
// nfnetlink.ErrInterrupted. The flows before it are valid, but others may be
// missing. If the caller leaves the loop early, the next dump first reads the
// rest. At the limit of the selection, the rest is dropped.
func (c *Conn) listFlows(s Selection) iter.Seq2[trackedFlow, error] {
	return func(yield func(trackedFlow, error) bool) {
		last := c.received + s.Limit
		each := func(msg nfnetlink.Message) error {
			if msg.Type() != messageNew {
				return nil
			}
			c.received++
			flow, err := decodeFlow(msg.Attributes())
			if err == nil && s.matches(flow) && !yield(flow, nil) {
				return errStopped
			}
			if err == nil && s.Limit > 0 && c.received >= last {
				err = errLimit
			}
			return err
		}
		err := request(c.dumps, messageGet, unix.NLM_F_DUMP, s.Family, s.writeTo, each)
		if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EOPNOTSUPP) {
			// The kernel refuses the request before it sends the first flow.
			all := Selection{Family: s.Family}
			err = request(c.dumps, messageGet, unix.NLM_F_DUMP, s.Family, all.writeTo, each)
		}
		if errors.Is(err, errLimit) {
			err = c.dropDump()
		}
		if err != nil && !errors.Is(err, errStopped) {
			yield(trackedFlow{}, fmt.Errorf("dump %v: %w", s, err))
		}
	}
}

// Message types of ctnetlink (enum cntl_msg_types in nfnetlink_conntrack.h)
// with their subsystem.
const (
	messageNew    = unix.NFNL_SUBSYS_CTNETLINK << 8   // IPCTNL_MSG_CT_NEW
	messageGet    = unix.NFNL_SUBSYS_CTNETLINK<<8 | 1 // IPCTNL_MSG_CT_GET
	messageDelete = unix.NFNL_SUBSYS_CTNETLINK<<8 | 2 // IPCTNL_MSG_CT_DELETE
)

// describe returns the type of a message of ctnetlink, for the log of messages.
func describe(msg nfnetlink.Message) (typ string, objects []slog.Attr) {
	return map[uint16]string{
		messageNew: "IPCTNL_MSG_CT_NEW", messageGet: "IPCTNL_MSG_CT_GET", messageDelete: "IPCTNL_MSG_CT_DELETE",
		messageGetStats: "IPCTNL_MSG_CT_GET_STATS",
	}[msg.Type()], nil
}

// Attributes of a flow (enum ctattr_type).
const (
	ctaTupleOrig  = 1
	ctaTupleReply = 2
	ctaStatus     = 3
	ctaProtoInfo  = 4
	ctaID         = 12
	ctaZone       = 18
	ctaFilter     = 25
	ctaStatusMask = 26
)

// Attributes within a tuple (enum ctattr_tuple, ctattr_ip, ctattr_l4proto).
const (
	ctaTupleIP    = 1
	ctaTupleProto = 2
	ctaTupleZone  = 3

	ctaIPv4Src = 1
	ctaIPv4Dst = 2
	ctaIPv6Src = 3
	ctaIPv6Dst = 4

	ctaProtoNum     = 1
	ctaProtoSrcPort = 2
	ctaProtoDstPort = 3
)

// writeTuple writes a complete tuple. Zone 0 is the default and needs no
// attribute.
func writeTuple(w *nfnetlink.Writer, kind uint16, protocol uint8, t tuple, zoneID uint16) {
	nest := w.Nest(kind)
	ip := w.Nest(ctaTupleIP)
	w.Addr(ctaIPv4Src, ctaIPv6Src, t.src.Addr())
	w.Addr(ctaIPv4Dst, ctaIPv6Dst, t.dst.Addr())
	w.Unnest(ip)
	proto := w.Nest(ctaTupleProto)
	w.Uint8(ctaProtoNum, protocol)
	w.Uint16(ctaProtoSrcPort, t.src.Port())
	w.Uint16(ctaProtoDstPort, t.dst.Port())
	w.Unnest(proto)
	if zoneID != 0 {
		w.Uint16(ctaTupleZone, zoneID)
	}
	w.Unnest(nest)
}
