package conntrack

import (
	"cmp"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/nft/nfnetlink"
)

// deleteBatch is the number of deletions that are sent with one system call.
const deleteBatch = 128

// deleteFlows deletes up to deleteBatch flows of a protocol with ports, and
// returns how many it deleted. It is not an error if a flow no longer exists,
// or was replaced. A new flow stays, even if it is from the same client: a flow
// is deleted by its reply tuple, its zone and its ID. The ID alone is not
// enough. The kernel computes it from the entry's address in memory and the
// original tuple, and a new entry often gets the memory of the previous one.
//
// The kernel answers failed deletions and the last one. It handles all of them,
// in order, before send returns. deleteFlows returns the first error and the
// number of errors.
func (c *Conn) deleteFlows(flows ...trackedFlow) (deleted int, err error) {
	if len(flows) == 0 {
		return 0, nil
	}
	c.calls.Discard() // answers to an earlier batch that was abandoned
	w := nfnetlink.Writer{Buf: c.requests[:0], Seq: c.calls.Seq}
	first := w.Seq + 1
	for i, flow := range flows {
		flags := uint16(0)
		if i == len(flows)-1 {
			flags = unix.NLM_F_ACK
		}
		writeDelete(&w, flags, flow)
	}
	c.requests, c.calls.Seq = w.Buf, w.Seq
	if err = c.calls.Send(w.Buf); err == nil {
		deleted, err = c.receiveDeletions(flows, first)
	}
	return deleted, err
}

// receiveDeletions reads the answers to the deletions of flows, whose
// sequence numbers start with first. After nfnetlink.ErrLost the number of
// deletions is unknown: that is an error, and the next dump lists the flows
// that still exist.
func (c *Conn) receiveDeletions(flows []trackedFlow, first uint32) (deleted int, err error) {
	var failures int
	var failure error // the first
	deleted = len(flows)
	for {
		data, err := c.calls.Receive()
		if err != nil {
			return 0, fmt.Errorf("delete %d flows: %w", len(flows), err)
		}
		for msg, err := range nfnetlink.Messages(data) {
			var r nfnetlink.Reply
			if err == nil {
				r, err = nfnetlink.ParseReply(msg)
			}
			if err != nil {
				return 0, err
			}
			i := int(r.Seq - first)
			if i < 0 || i >= len(flows) {
				continue // an answer to an earlier batch that was abandoned
			}
			if r.Errno != 0 {
				deleted--
			}
			if r.Errno != 0 && r.Errno != unix.ENOENT {
				failures++
				failure = cmp.Or(failure, fmt.Errorf("delete flow %v: %w", flows[i], r.Err()))
			}
			if i < len(flows)-1 {
				continue
			}
			if failures > 1 {
				failure = fmt.Errorf("%d of %d deletions failed, the first: %w", failures, len(flows), failure)
			}
			return deleted, failure
		}
	}
}

// writeDelete writes the request to delete one flow. It must contain a tuple:
// without one, the kernel flushes the table.
func writeDelete(w *nfnetlink.Writer, flags uint16, flow trackedFlow) {
	at := w.Begin(messageDelete, flags, flow.family(), 0)
	var replyZone uint16
	if flow.zone.direction == zoneReply {
		replyZone = flow.zone.id
	}
	writeTuple(w, ctaTupleReply, flow.protocol, flow.reply, replyZone)
	if flow.zone.direction == zoneBoth && flow.zone.id != 0 {
		w.Uint16(ctaZone, flow.zone.id)
	}
	w.Uint32(ctaID, flow.id)
	w.End(at)
}
