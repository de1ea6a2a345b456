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
	// damaged. whole is when it was found to be whole again, zero if it is not.
	failing bool
	whole   time.Time
	// damage is for how long checks left the table damaged, less half of the
	// time for which it was whole. So it also grows if some repairs succeed. It
	// does not grow if each check repairs the damage that it finds. last is the
	// time of the last check.
	damage time.Duration
	last   time.Time
}

// outageTime is how long damage must last before the family fails, and how long
// the table must be whole before the family serves again. So no program takes
// all nodes out of load balancers with one flush, and none makes a node flap.
const outageTime = 5 * time.Second

// checked records whether the table is damaged, and since when. since is zero
// if no damage remains.
func (h *health) checked(since, now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.last.IsZero():
		h.whole = now
	case h.whole.IsZero(): // damage remained after the last check
		h.damage += now.Sub(h.last)
	default:
		h.damage = max(0, h.damage-now.Sub(h.last)/2)
	}
	h.last = now
	switch {
	case !since.IsZero():
		h.whole = time.Time{}
		h.failing = h.failing || h.damage > outageTime
	case h.whole.IsZero():
		h.whole = now
	case now.Sub(h.whole) >= outageTime:
		h.failing, h.damage = false, 0
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
