package proxier

import (
	"context"
	"fmt"
	"time"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/table/keep"
)

// pulse wakes the loops of all families when another program committed, and
// those whose last check left something to do. So an idle process makes one
// request to the kernel in each checkPeriod, whatever the number of families.
// If the request fails or hangs, the loops still check their tables each
// publishPeriod.
type pulse struct {
	kernel     *nft.Conn
	generation *keep.Generation
}

// openPulse connects to nf_tables in the network namespace of the calling
// thread.
func openPulse(generation *keep.Generation) (*pulse, error) {
	kernel, err := nft.Open()
	if err != nil {
		return nil, fmt.Errorf("pulse: %w", err)
	}
	return &pulse{kernel, generation}, nil
}

// Close closes the connection.
func (p *pulse) Close() error { return p.kernel.Close() }

// run runs until ctx ends.
func (p *pulse) run(ctx context.Context, loops []*syncLoop) {
	tick := time.NewTicker(checkPeriod)
	defer tick.Stop()
	known := 0
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		foreign, err := p.generation.Poll(p.kernel.Generation)
		for _, l := range loops {
			if err != nil || foreign != known || !l.idle.Load() {
				signal(l.checks)
			}
		}
		known = foreign
	}
}
