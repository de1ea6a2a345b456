package conntrack

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// deleteBatch is how many deletions are sent with one system call.
const deleteBatch = 128

// ErrNoPorts says that flows of this protocol cannot be deleted: their tuples consist of more than addresses and ports.
var ErrNoPorts = errors.New("protocol without ports")

// Delete deletes the given flows and says how many of them it deleted. A flow that is gone is no error. Neither is one
// that was replaced meanwhile, and the new one stays, even if it comes from the same client: a flow is deleted by its
// reply tuple, its zone and its id. The id alone would not do, for the kernel computes it from the entry's address in
// memory and the original tuple, and a new entry mostly gets the memory of the one that just went.
//
// All flows are tried; errors are joined. Of a protocol without ports none can be deleted, and nothing is tried then
// ([ErrNoPorts]).
func (c *Conn) Delete(flows ...Flow) (deleted int, err error) {
	for _, flow := range flows {
		if !hasPorts(flow.Protocol) {
			return 0, fmt.Errorf("delete flow %v: %w", flow, ErrNoPorts)
		}
	}
	var errs []error
	for len(flows) > 0 {
		n := min(len(flows), deleteBatch)
		done, err := c.deleteSome(flows[:n])
		deleted += done
		errs = append(errs, err)
		flows = flows[n:]
	}
	return deleted, errors.Join(errs...)
}

// deleteSome sends one batch of deletions. Only errors are answered, and the last deletion in any case: the kernel has
// handled them all, in order, when send returns.
func (c *Conn) deleteSome(flows []Flow) (deleted int, err error) {
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
	return c.deleteResults(flows, first)
}

// deleteResults reads the answers to the deletions of flows, whose sequence numbers start with first. ENOBUFS, an
// answer lost for want of memory, leaves the number unknown: it is an error, and what was to go is gone or is found
// again by the next dump.
func (c *Conn) deleteResults(flows []Flow, first uint32) (deleted int, err error) {
	deleted = len(flows)
	var errs []error
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
				continue // an answer to an earlier batch that was given up
			}
			if err := messageError(payload); err != nil {
				deleted--
				if !errors.Is(err, unix.ENOENT) {
					errs = append(errs, fmt.Errorf("delete flow %v: %w", flows[i], err))
				}
			}
			if i == len(flows)-1 {
				return deleted, errors.Join(errs...)
			}
		}
	}
}

// appendDelete appends the request to delete one flow. A tuple must be in it: without one, the kernel flushes the
// table.
func appendDelete(b []byte, flags uint16, seq uint32, flow Flow) []byte {
	start := len(b)
	b = appendMessage(b, header{Type: messageDelete, Flags: flags, Seq: seq}, flow.Family())
	var replyZone uint16
	if flow.Zone.Direction == ZoneReply {
		replyZone = flow.Zone.ID
	}
	b = appendTuple(b, ctaTupleReply, flow.Protocol, flow.Reply, replyZone)
	if flow.Zone.Direction == ZoneBoth && flow.Zone.ID != 0 {
		b = appendUint16(b, ctaZone, flow.Zone.ID)
	}
	b = appendUint32(b, ctaID, flow.ID)
	return endMessage(b, start)
}

// hasPorts reports whether addresses and ports are the whole tuple of a protocol.
func hasPorts(protocol uint8) bool {
	switch protocol {
	case unix.IPPROTO_TCP, unix.IPPROTO_UDP, unix.IPPROTO_SCTP, unix.IPPROTO_UDPLITE:
		return true
	default:
		return false
	}
}
