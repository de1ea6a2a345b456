package proxier

import (
	"cmp"
	"sync"
	"time"

	"github.com/nftproxy/nftproxy/healthcheck"
)

// health is the health of the syncs of one address family: whether changes
// reach the kernel in time. Any goroutine can use it.
type health struct {
	patience time.Duration // how long a change may wait for a successful sync

	mu sync.Mutex // guards the fields below
	// waiting is the time of the oldest change that waits for the next sync,
	// running the time of the oldest change in the running sync. They are zero
	// if there is none.
	waiting, running time.Time
	synced           time.Time // end of the last successful sync; zero before the first
	// failing reports whether new connections fail because the table is
	// damaged.
	failing bool
	// outage is for how long the table was damaged, less the time for which it
	// was whole, from 0 to outageTime.
	outage time.Duration
	// damaged is the outcome of the last check, at the time checked.
	damaged bool
	checked time.Time
}

// outageTime is how much longer than whole the table must be damaged before the
// family fails, and whole before it serves again. So no program takes all nodes
// out of load balancers with a few flushes, and none makes a node flap.
const outageTime = 5 * time.Second

// check records whether a check found damage, repaired or not. If the last
// check found damage, too, another program damaged the table soon after the
// repair, and the time between the checks counts. Otherwise at most pollPeriod
// does, also on a calm node, whose checks are further apart.
func (h *health) check(damaged bool, now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	elapsed := now.Sub(cmp.Or(h.checked, now))
	var outage time.Duration
	switch {
	case damaged && h.damaged:
		outage = elapsed
	case damaged:
		outage = min(elapsed, pollPeriod)
	}
	h.damaged, h.checked = damaged, now
	switch h.outage = min(max(0, h.outage+2*outage-elapsed), outageTime); h.outage {
	case outageTime:
		h.failing = true
	case 0:
		h.failing = false
	}
}

// changed records that a change waits for a sync. It must not be called before
// the first lists are complete: a change that waits for the API server is not
// late.
func (h *health) changed() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.waiting.IsZero() {
		h.waiting = time.Now()
	}
}

// during runs a sync and records its outcome. Changes after its beginning wait
// for the next one.
func (h *health) during(sync func() error) error {
	h.mu.Lock()
	h.waiting, h.running = time.Time{}, cmp.Or(h.waiting, time.Now())
	h.mu.Unlock()
	err := sync()
	h.mu.Lock()
	defer h.mu.Unlock()
	if err == nil {
		h.synced = time.Now()
	} else {
		h.waiting = h.running
	}
	h.running = time.Time{}
	return err
}

// state returns the health without the name of the family, and the time of the
// oldest change that is not effective yet, zero without one. The family is
// healthy unless this change has been waiting for patience or longer.
func (h *health) state() (s healthcheck.FamilyHealth, waitingSince time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	since := cmp.Or(h.running, h.waiting)
	inTime := since.IsZero() || time.Since(since) < h.patience
	return healthcheck.FamilyHealth{LastUpdated: h.synced, Healthy: inTime, Failing: h.failing}, since
}
