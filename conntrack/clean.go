package conntrack

import (
	"context"
	"errors"

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
