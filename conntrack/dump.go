package conntrack

import (
	"errors"
	"fmt"
	"iter"

	"golang.org/x/sys/unix"
)

// ErrInterrupted says that the table changed so much during a dump that flows may be missing from it
// (NLM_F_DUMP_INTR). The flows that did come are valid.
var ErrInterrupted = errors.New("the dump was interrupted")

// errStopped ends a dump that the caller has left.
var errStopped = errors.New("stopped")

// Flows gives the flows that the filter selects, one by one as the kernel sends them: memory use does not depend on
// the size of the table. A flow that lives throughout is given at least once. It may come twice when others are
// deleted meanwhile, and may be missing when the kernel resizes its hash table meanwhile (a write to
// net.netfilter.nf_conntrack_buckets).
//
// An error is given last, with a zero flow: a system call's, or [ErrInterrupted]. It says nothing against the flows
// that came before; to see all of them, start again. When the loop is left early, the next one pays for reading what
// is left.
func (c *Conn) Flows(filter Filter) iter.Seq2[Flow, error] {
	return func(yield func(Flow, error) bool) {
		err := c.dump(filter, filter.appendRequest, yield)
		if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EOPNOTSUPP) {
			// Refused as a whole, before the first flow.
			err = c.dump(filter, filter.appendFamilyRequest, yield)
		}
		if err != nil && err != errStopped {
			yield(Flow{}, fmt.Errorf("dump %v: %w", filter, err))
		}
	}
}

// dump sends one request and yields what matches until the kernel is done.
func (c *Conn) dump(filter Filter, request func([]byte, uint32) []byte, yield func(Flow, error) bool) error {
	if err := c.finishDump(); err != nil {
		return err
	}
	seq := c.dumps.nextSeq()
	c.requests = request(c.requests[:0], seq)
	if err := c.dumps.send(c.requests); err != nil {
		return err
	}
	c.dumping = true
	interrupted := false
	for c.dumping {
		b, err := c.dumps.receive()
		if err != nil {
			return err
		}
		intr, err := c.readFlows(b, seq, filter, yield)
		if err != nil {
			return err
		}
		interrupted = interrupted || intr
	}
	if interrupted {
		return ErrInterrupted
	}
	return nil
}

// readFlows yields the matching flows of one piece of a dump, and notices the dump's end.
func (c *Conn) readFlows(b []byte, seq uint32, filter Filter, yield func(Flow, error) bool) (interrupted bool, err error) {
	for len(b) > 0 {
		h, payload, rest, err := nextMessage(b)
		if err != nil {
			return interrupted, err
		}
		b = rest
		if h.Seq != seq {
			continue
		}
		interrupted = interrupted || h.Flags&unix.NLM_F_DUMP_INTR != 0
		switch h.Type {
		case unix.NLMSG_DONE, unix.NLMSG_ERROR:
			c.dumping = false
			return interrupted, messageError(payload)
		case messageNew:
			c.received++
			flow, err := decodeFlow(payload)
			if err != nil {
				return interrupted, err
			}
			if filter.Match(flow) && !yield(flow, nil) {
				return interrupted, errStopped
			}
		}
	}
	return interrupted, nil
}

// finishDump reads what an abandoned dump has left.
func (c *Conn) finishDump() error {
	for c.dumping {
		b, err := c.dumps.receive()
		if errors.Is(err, unix.ENOBUFS) {
			continue
		}
		if err != nil {
			return fmt.Errorf("finish the previous dump: %w", err)
		}
		for len(b) > 0 {
			h, _, rest, err := nextMessage(b)
			if err != nil {
				return err
			}
			if h.Type == unix.NLMSG_DONE || h.Type == unix.NLMSG_ERROR {
				c.dumping = false
			}
			b = rest
		}
	}
	return nil
}
