package conntrack

import (
	"errors"
	"fmt"
	"iter"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/nft/nfnetlink"
)

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
// nfnetlink.ErrInterrupted. The flows before it are valid, but others may be
// missing. If the caller leaves the loop early, the next dump first reads the
// rest.
func (c *Conn) listFlows(filter dumpFilter) iter.Seq2[trackedFlow, error] {
	return func(yield func(trackedFlow, error) bool) {
		err := c.dumpFiltered(filter, func(attributes []byte) error {
			flow, err := decodeFlow(attributes)
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

// dumpFiltered calls each with the attributes of every flow of a dump. The
// kernel may ignore the filter. An error of each ends the dump.
func (c *Conn) dumpFiltered(filter dumpFilter, each func(attributes []byte) error) error {
	err := c.dump(filter.writeTo, each)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EOPNOTSUPP) {
		// The kernel refuses the request before it sends the first flow.
		err = c.dump(dumpFilter{family: filter.family}.writeTo, each)
	}
	if err != nil {
		return fmt.Errorf("dump %v: %w", filter, err)
	}
	return nil
}

// dump sends one request and calls each with the attributes of the flows.
func (c *Conn) dump(request func(*nfnetlink.Writer), each func(attributes []byte) error) error {
	w := nfnetlink.Writer{Buf: c.requests[:0], Seq: c.dumps.Seq}
	request(&w)
	c.requests = w.Buf
	return c.dumps.Request(&w, func(msg nfnetlink.Message) error {
		if msg.Type() != messageNew {
			return nil
		}
		c.received++
		return each(msg.Attributes())
	})
}
