package conntrack

import (
	"errors"
	"fmt"
	"iter"

	"golang.org/x/sys/unix"
)

// errInterrupted is returned if the table changed so much during a dump that
// flows may be missing (NLM_F_DUMP_INTR). The yielded flows are valid.
var errInterrupted = errors.New("the dump was interrupted")

// errStopped ends a dump after the caller left the loop.
var errStopped = errors.New("stopped")

// listFlows returns an iterator over the flows that the filter selects. It
// yields each flow as the kernel sends it, so memory use does not depend on
// the size of the table. A flow that exists during the whole dump is yielded
// at least once. It may be yielded twice if other flows are deleted
// meanwhile. It may be missing if the kernel resizes its hash table
// meanwhile (a write to net.netfilter.nf_conntrack_buckets).
//
// An error is yielded last, with a zero flow: the error of a system call, or
// errInterrupted. The flows before it are valid, but others may be missing.
// If the caller leaves the loop early, the next dump first reads the rest.
func (c *Conn) listFlows(filter dumpFilter) iter.Seq2[trackedFlow, error] {
	return func(yield func(trackedFlow, error) bool) {
		err := c.dumpFiltered(filter, func(payload []byte) error {
			flow, err := decodeFlow(payload)
			if err == nil && filter.matches(flow) && !yield(flow, nil) {
				err = errStopped
			}
			return err
		})
		if err != nil && !errors.Is(err, errStopped) {
			yield(trackedFlow{}, err)
		}
	}
}

// dumpFiltered calls each with the payload of every message of a dump. The
// kernel may ignore the filter. An error of each ends the dump.
func (c *Conn) dumpFiltered(filter dumpFilter, each func(payload []byte) error) error {
	err := c.dump(filter.appendRequest, each)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EOPNOTSUPP) {
		// The kernel refuses the request before it sends the first flow.
		err = c.dump(filter.appendFamilyRequest, each)
	}
	if err != nil {
		return fmt.Errorf("dump %v: %w", filter, err)
	}
	return nil
}

// dump sends one request and calls each with the payloads of the answer, until
// the dump ends.
func (c *Conn) dump(request func([]byte, uint32) []byte, each func(payload []byte) error) error {
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
		intr, err := c.readFlows(b, seq, each)
		if err != nil {
			return err
		}
		interrupted = interrupted || intr
	}
	if interrupted {
		return errInterrupted
	}
	return nil
}

// readFlows calls each with the payloads in one part of a dump, and detects the
// end of the dump.
func (c *Conn) readFlows(b []byte, seq uint32, each func(payload []byte) error) (interrupted bool, err error) {
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
			if err := each(payload); err != nil {
				return interrupted, err
			}
		}
	}
	return interrupted, nil
}

// finishDump reads the rest of an abandoned dump.
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
