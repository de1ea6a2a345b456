package conntrack

import (
	"context"
	"errors"
	"net/netip"

	"golang.org/x/sys/unix"
)

// Stats counts what a pass did.
type Stats struct {
	Dumps   int // dumps asked for
	Flows   int // flows that the kernel sent
	Deleted int
	// DeletedIPv6 are those of Deleted that are of IPv6.
	DeletedIPv6 int
}

// maxAttempts is how often a dump is made that the kernel could not finish.
const maxAttempts = 3

// Clean deletes the flows to the changed frontends that no longer lead to a serving endpoint, all changes in one pass;
// [Change] and its rules say which. Flows of other protocols than UDP always stay.
//
// The rules for new flows have to be in the kernel before: what is deleted comes back with the client's next packet.
//
// isVIP may be nil. It is asked about the destinations of flows to NodePorts on all local addresses, and says whether
// there is a VIP with this very address and port: the rules prefer it, so the flow is not the NodePort's.
//
// A dump that was interrupted or overrun (ErrInterrupted, ENOBUFS) is made again, three times at most. On an error the
// pass goes on with the next dump; the same changes can be given again.
func (c *Conn) Clean(ctx context.Context, changes []Change, isVIP func(netip.AddrPort) bool) (Stats, error) {
	table := newFrontends(changes)
	local := localAddrs{conn: c}
	isNodeAddr := func(dst netip.AddrPort) bool {
		return local.contains(dst.Addr()) && (isVIP == nil || !isVIP(dst))
	}
	entries, err := c.Entries()
	if err != nil || entries == 0 {
		return Stats{}, err
	}
	stale := func(flow Flow) bool { return table.stale(flow, isNodeAddr) }
	var stats Stats
	var errs []error
	for _, filter := range plan(table, entries) {
		errs = append(errs, c.cleanFilter(ctx, filter, stale, &stats))
	}
	return stats, errors.Join(append(errs, local.errs...)...)
}

// cleanFilter deletes the stale flows that a filter selects, with as many dumps as it takes.
func (c *Conn) cleanFilter(ctx context.Context, filter Filter, stale func(Flow) bool, stats *Stats) (err error) {
	for range maxAttempts {
		if err = ctx.Err(); err != nil {
			return err
		}
		err = c.cleanDump(ctx, filter, stale, stats)
		if !errors.Is(err, ErrInterrupted) && !errors.Is(err, unix.ENOBUFS) {
			return err
		}
	}
	return err
}

// cleanDump deletes the stale flows of one dump, in batches while it runs.
func (c *Conn) cleanDump(ctx context.Context, filter Filter, stale func(Flow) bool, stats *Stats) error {
	stats.Dumps++
	before := c.received
	defer func() { stats.Flows += c.received - before }()

	c.pending = c.pending[:0]
	for flow, err := range c.Flows(filter) {
		if err == nil {
			err = ctx.Err()
		}
		if err == nil && stale(flow) {
			c.pending = append(c.pending, flow)
			if len(c.pending) == deleteBatch {
				err = c.deletePending(stats)
			}
		}
		if err != nil {
			return errors.Join(err, c.deletePending(stats))
		}
	}
	return c.deletePending(stats)
}

func (c *Conn) deletePending(stats *Stats) error {
	var ipv4, ipv6 []Flow
	for _, flow := range c.pending {
		if flow.Family() == IPv6 {
			ipv6 = append(ipv6, flow)
		} else {
			ipv4 = append(ipv4, flow)
		}
	}
	c.pending = c.pending[:0]
	deleted4, err4 := c.Delete(ipv4...)
	deleted6, err6 := c.Delete(ipv6...)
	stats.Deleted += deleted4 + deleted6
	stats.DeletedIPv6 += deleted6
	return errors.Join(err4, err6)
}
