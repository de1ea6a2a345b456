package stage

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// Expectation is the table that a proxy that starts is to come to: frontends for TCP that it serves, and that it does not serve.
type Expectation struct{ Present, Absent []netip.AddrPort }

// AwaitProgrammed waits until packets of both families get to the table and all rows are there. It returns when the transaction was
// committed that made it so, to 2 ms.
func (n *Node) AwaitProgrammed(p *Process, want Expectation) (time.Time, error) {
	const (
		period = 2 * time.Millisecond
		limit  = 10 * time.Minute
	)
	var last uint32
	for end := time.Now().Add(limit); time.Now().Before(end); {
		generation, err := n.Prober.Generation()
		if err != nil {
			return time.Time{}, err
		}
		if at := time.Now(); generation != last {
			last = generation
			if is, err := n.programmed(want); is || err != nil {
				return at, err
			}
		}
		if err := p.Pause(period); err != nil {
			return time.Time{}, err
		}
	}
	return time.Time{}, fmt.Errorf("%s has not written all of %d Services after %s", n.Proxy, len(want.Present), limit)
}

// programmed compares the table with what is expected. What comes last in most proxies is looked at first.
func (n *Node) programmed(want Expectation) (bool, error) {
	for _, family := range []uint8{unix.NFPROTO_IPV4, unix.NFPROTO_IPV6} {
		if is, err := n.Prober.Hooked(family); !is || err != nil {
			return false, err
		}
	}
	for _, gone := range want.Absent {
		if is, err := n.Prober.Serves([]netip.AddrPort{gone}); is || err != nil {
			return false, err
		}
	}
	last := slices.Clone(want.Present)
	slices.Reverse(last)
	return n.Prober.Serves(last)
}
