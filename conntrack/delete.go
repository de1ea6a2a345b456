package conntrack

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// deleteBatch is the number of deletions that are sent with one system call.
const deleteBatch = 128

// deleteFlows deletes flows of a protocol with ports, and returns how many
// it deleted. It is not an error if a flow no longer exists, or was
// replaced. A new flow stays, even if it is from the same client: a flow is
// deleted by its reply tuple, its zone and its ID. The ID alone is not
// enough. The kernel computes it from the entry's address in memory and the
// original tuple, and a new entry often gets the memory of the previous one.
//
// deleteFlows tries all flows. For each batch it returns the first error and
// the number of errors.
func (c *Conn) deleteFlows(flows ...trackedFlow) (deleted int, err error) {
	var errs []error
	for len(flows) > 0 {
		n := min(len(flows), deleteBatch)
		done, err := c.sendDeletions(flows[:n])
		deleted += done
		errs = append(errs, err)
		flows = flows[n:]
	}
	return deleted, errors.Join(errs...)
}

// sendDeletions sends one batch of deletions. The kernel answers failed
// deletions and the last one. It handles all of them, in order, before send
// returns.
func (c *Conn) sendDeletions(flows []trackedFlow) (deleted int, err error) {
	first := c.calls.seq + 1
	b := c.requests[:0]
	for i, flow := range flows {
		flags := uint16(unix.NLM_F_REQUEST)
		if i == len(flows)-1 {
			flags |= unix.NLM_F_ACK
		}
		b = appendDelete(b, flags, c.calls.nextSeq(), flow)
	}
	c.requests = b
	if err := c.calls.send(b); err != nil {
		return 0, fmt.Errorf("delete %d flows: %w", len(flows), err)
	}
	return c.receiveDeletions(flows, first)
}

// receiveDeletions reads the answers to the deletions of flows, whose
// sequence numbers start with first. ENOBUFS means that an answer was lost,
// so the number of deletions is unknown: that is an error, and the next dump
// lists the flows that still exist.
func (c *Conn) receiveDeletions(flows []trackedFlow, first uint32) (deleted int, err error) {
	deleted = len(flows)
	var failed int
	var firstErr error
	for {
		b, err := c.calls.receive()
		if err != nil {
			return 0, fmt.Errorf("delete %d flows: %w", len(flows), err)
		}
		for len(b) > 0 {
			h, payload, rest, err := nextMessage(b)
			if err != nil {
				return 0, err
			}
			b = rest
			i := int(h.Seq - first)
			if h.Type != unix.NLMSG_ERROR || i < 0 || i >= len(flows) {
				continue // an answer to an earlier batch that was abandoned
			}
			if err := messageError(payload); err != nil {
				deleted--
				if !errors.Is(err, unix.ENOENT) {
					failed++
					if firstErr == nil {
						firstErr = fmt.Errorf("delete flow %v: %w", flows[i], err)
					}
				}
			}
			if i == len(flows)-1 {
				return deleted, deleteError(failed, len(flows), firstErr)
			}
		}
	}
}

// deleteError returns one error for all failures of a batch, or nil.
func deleteError(failed, flows int, first error) error {
	if failed <= 1 {
		return first
	}
	return fmt.Errorf("%d of %d deletions failed, the first: %w", failed, flows, first)
}

// appendDelete appends the request to delete one flow. It must contain a
// tuple: without one, the kernel flushes the table.
func appendDelete(b []byte, flags uint16, seq uint32, flow trackedFlow) []byte {
	start := len(b)
	b = appendMessage(b, header{Type: messageDelete, Flags: flags, Seq: seq}, flow.family())
	var replyZone uint16
	if flow.zone.direction == zoneReply {
		replyZone = flow.zone.id
	}
	b = appendTuple(b, ctaTupleReply, flow.protocol, flow.reply, replyZone)
	if flow.zone.direction == zoneBoth && flow.zone.id != 0 {
		b = appendUint16(b, ctaZone, flow.zone.id)
	}
	b = appendUint32(b, ctaID, flow.id)
	return endMessage(b, start)
}
