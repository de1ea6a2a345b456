package proxier

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/calm"
	"github.com/nftproxy/nftproxy/proxier/table/keep"
)

// Periods of the pulse, on a node that is alert, and in calm (see package
// calm).
const (
	// pollPeriod is the interval between checks for changes by other programs.
	pollPeriod     = 50 * time.Millisecond
	calmPollPeriod = 500 * time.Millisecond
	// checkPeriod is the interval at which the loops check their tables even if
	// no other program committed: they read the sysctls and publish metrics.
	checkPeriod     = time.Second
	calmCheckPeriod = 10 * time.Second
)

// pulse wakes the loops of all families when another program committed, those
// whose last check left something to do, and all in each checkPeriod. So an
// idle process makes one request to the kernel in each pollPeriod, whatever the
// number of families. The kernel answers it without waiting for a commit.
type pulse struct {
	kernel     *nft.Conn
	generation *keep.Generation
	calm       *calm.State
	foreign    int       // the number of commits of other programs so far
	isNew      bool      // whether the last poll found some
	checked    time.Time // when all loops were last woken
}

// openPulse connects to nf_tables in the network namespace of the calling
// thread.
func openPulse(generation *keep.Generation, calm *calm.State) (*pulse, error) {
	kernel, err := nft.Open()
	if err != nil {
		return nil, fmt.Errorf("pulse: %w", err)
	}
	return &pulse{kernel: kernel, generation: generation, calm: calm}, nil
}

// Close closes the connection.
func (p *pulse) Close() error { return p.kernel.Close() }

// run runs until ctx ends.
func (p *pulse) run(ctx context.Context, loops []*syncLoop) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
			now := time.Now()
			// If the timer were reset later, the runtime would wake another
			// thread, which already waits for a later timer.
			timer.Reset(p.next(now).Sub(now))
			p.poll(now, loops)
		}
	}
}

// next returns the time of the poll after one at now. While another program
// commits, it is random: one that damages the tables in the same period, such
// as a second proxy, must neither always commit just after a check nor just
// before the next one. So the checks that find damage show how long it lasted.
func (p *pulse) next(now time.Time) time.Time {
	if p.isNew {
		return now.Add(rand.N(pollPeriod))
	}
	return p.calm.Next(now, now, pollPeriod, calmPollPeriod)
}

// poll wakes the loops that have something to do.
func (p *pulse) poll(now time.Time, loops []*syncLoop) {
	foreign, err := p.generation.Poll(p.kernel.Generation)
	all := !now.Before(p.calm.Next(now, p.checked, checkPeriod, calmCheckPeriod))
	if all {
		p.checked = now
	}
	for _, l := range loops {
		needed := err != nil || foreign != p.foreign || !l.idle.Load()
		if needed {
			p.calm.Disturb(now)
		}
		if needed || all {
			signal(l.checks)
		}
	}
	p.foreign, p.isNew = foreign, foreign != p.foreign
}
