package conntrack

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/nft/nfnetlink"
)

// Stats counts the work of a pass.
type Stats struct {
	Dumps       int // dumps requested
	Flows       int // flows that the kernel sent
	Deleted     int // stale flows that were deleted
	DeletedIPv6 int // IPv6 flows among Deleted
}

// maxAttempts is the number of attempts at a dump that the kernel cannot
// finish.
const maxAttempts = 3

// clean deletes the stale flows of a check, in one pass.
//
// The rules for new flows must already be in the kernel: the next packet of a
// client creates its flow again.
//
// A dump that was interrupted (nfnetlink.ErrInterrupted) is repeated, up to
// maxAttempts times in total, and so is one during which the kernel returned
// ENOBUFS with any meaning (see nfnetlink.ErrLost). After an error the pass
// continues with the next dump. clean may be called again with the same
// check.
func (c *Conn) clean(ctx context.Context, f *frontends, todo *check) (Stats, error) {
	entries, err := c.Entries()
	if err != nil || entries == 0 {
		return Stats{}, err
	}
	local := localAddrs{conn: c}
	stale := func(flow trackedFlow) bool { return f.stale(flow, todo, local.contains) }
	var stats Stats
	var errs []error
	for _, selected := range plan(todo, entries) {
		errs = append(errs, c.cleanSelected(ctx, selected, stale, &stats))
	}
	return stats, errors.Join(append(errs, local.err)...)
}

// cleanSelected deletes the stale flows of a selection. It repeats a dump that
// the kernel could not finish.
func (c *Conn) cleanSelected(ctx context.Context, s Selection, stale func(trackedFlow) bool, stats *Stats) (err error) {
	for range maxAttempts {
		if err = ctx.Err(); err != nil {
			return err
		}
		err = c.cleanDump(ctx, s, stale, stats)
		if !errors.Is(err, nfnetlink.ErrInterrupted) && !errors.Is(err, unix.ENOBUFS) {
			return err
		}
	}
	return err
}

// cleanDump deletes the stale flows of one dump, in batches while the dump
// continues.
func (c *Conn) cleanDump(ctx context.Context, s Selection, stale func(trackedFlow) bool, stats *Stats) error {
	stats.Dumps++
	before := c.received
	defer func() { stats.Flows += c.received - before }()

	c.pending = c.pending[:0]
	for flow, err := range c.listFlows(s) {
		if err == nil {
			err = ctx.Err()
		}
		if err == nil && stale(flow) {
			c.pending = append(c.pending, flow)
			if len(c.pending) == deleteBatch {
				err = c.deletePending(s.Family, stats)
			}
		}
		if err != nil {
			return errors.Join(err, c.deletePending(s.Family, stats))
		}
	}
	return c.deletePending(s.Family, stats)
}

// deletePending deletes the pending flows, which are of one family.
func (c *Conn) deletePending(family Family, stats *Stats) error {
	c.challenges.add(c.pending)
	deleted, err := c.deleteFlows(c.pending...)
	c.pending = c.pending[:0]
	stats.Deleted += deleted
	if family == IPv6 {
		stats.DeletedIPv6 += deleted
	}
	return err
}

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
