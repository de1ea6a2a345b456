package tour

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/nftproxy/nftproxy/test/demo/cluster"
	"github.com/nftproxy/nftproxy/test/lab"
)

// call is one line of a table of answers: somebody connects to an address of a Service, in both families.
type call struct {
	// from is the host that connects.
	from string
	// service is the Service, and to what the address is to it, in words.
	service, to string
	protocol    string
	addrs       cluster.Dual
	port        uint16
	// source is an address of from to connect from; none leaves it to the kernel.
	source cluster.Dual
	want   want
}

// String names the call.
func (c call) String() string {
	return fmt.Sprintf("%s to %s, %s, over %s", c.from, c.service, c.to, strings.ToUpper(c.protocol))
}

// outcome is what came of a call, by family.
type outcome struct {
	ipv4, ipv6 tally
}

// How often a call is made. With three endpoints, that one of them is not chosen by chance happens once in 10^10 times.
const (
	attempts     = 60
	lostAttempts = 3 // for calls that nobody answers: each takes lostTimeout
	lostTimeout  = 400 * time.Millisecond
)

// callAll makes the calls, several at the same time.
func (t *tour) callAll(ctx context.Context, calls []call) ([]outcome, error) {
	outcomes := make([]outcome, len(calls))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(12)
	for i, c := range calls {
		for _, family := range []struct {
			to, from netip.Addr
			into     *tally
		}{{c.addrs.IPv4, c.source.IPv4, &outcomes[i].ipv4}, {c.addrs.IPv6, c.source.IPv6, &outcomes[i].ipv6}} {
			group.Go(func() (err error) {
				*family.into, err = t.callOne(ctx, c, family.from, netip.AddrPortFrom(family.to, c.port))
				return err
			})
		}
	}
	return outcomes, group.Wait()
}

// callOne makes a call in one family.
func (t *tour) callOne(ctx context.Context, c call, from netip.Addr, to netip.AddrPort) (tally, error) {
	result := newTally()
	host, err := t.stage.Host(c.from)
	if err != nil {
		return result, err
	}
	count, options := attempts, lab.ProbeOptions{}
	if from.IsValid() {
		options.Local = netip.AddrPortFrom(from, 0)
	}
	if c.want.outcome == lab.TimedOut {
		count, options.Timeout = lostAttempts, lostTimeout
	}
	for range count {
		result.add(lab.Probe(ctx, host, c.protocol, to, options))
		t.connections.Add(1)
		if ctx.Err() != nil {
			return result, context.Cause(ctx)
		}
	}
	return result, nil
}

// checkCall compares both families of an outcome with what the call wants.
func (t *tour) checkCall(c call, got outcome) error {
	for _, family := range []struct {
		name  string
		tally tally
	}{{"IPv4", got.ipv4}, {"IPv6", got.ipv6}} {
		if err := c.want.check(family.tally, t.stage.HostOf); err != nil {
			return fmt.Errorf("%s: %w", family.name, err)
		}
	}
	return nil
}
