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
// rest.
func (c *Conn) listFlows(s Selection) iter.Seq2[trackedFlow, error] {
	return func(yield func(trackedFlow, error) bool) {
		each := func(msg nfnetlink.Message) error {
			if msg.Type() != messageNew {
				return nil
			}
			c.received++
			flow, err := decodeFlow(msg.Attributes())
			if err == nil && s.matches(flow) && !yield(flow, nil) {
				err = errStopped
			}
			return err
		}
		err := request(c.dumps, messageGet, unix.NLM_F_DUMP, s.Family, s.writeTo, each)
		if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EOPNOTSUPP) {
			// The kernel refuses the request before it sends the first flow.
			all := Selection{Family: s.Family}
			err = request(c.dumps, messageGet, unix.NLM_F_DUMP, s.Family, all.writeTo, each)
		}
		if err != nil && !errors.Is(err, errStopped) {
			yield(trackedFlow{}, fmt.Errorf("dump %v: %w", s, err))
		}
	}
}
