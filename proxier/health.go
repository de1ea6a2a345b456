package proxier

import (
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/nftproxy/nftproxy/healthcheck"
	"github.com/nftproxy/nftproxy/nft"
)

// health is the health of the syncs of each address family: whether changes
// reach the kernel in time. Any goroutine can use it.
type health struct {
	patience time.Duration // how long a change may wait for a successful sync

	mu       sync.Mutex // guards the fields below, except upToDate
	families []*familyHealth
}

// familyHealth is the health of one address family.
type familyHealth struct {
	family nft.Family
	// upToDate reports whether the kernel has all changes. Only the goroutine
	// that syncs calls it.
	upToDate func() bool
	// waiting is the time of the oldest change that waits for the next sync,
	// running that of the oldest change in the running sync. They are zero
	// without one.
	waiting, running time.Time
	synced           time.Time // end of the last successful sync; zero before the first
}

// watch adds an address family, before the first sync.
func (h *health) watch(family nft.Family, upToDate func() bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.families = append(h.families, &familyHealth{family: family, upToDate: upToDate})
}

// changed records that a change waits for a sync. It must not be called before
// the first lists are complete: a change that waits for the API server is not
// late.
func (h *health) changed() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, f := range h.families {
		f.waitsSince(time.Now())
	}
}

// waitsSince records that a change has been waiting since t.
func (f *familyHealth) waitsSince(t time.Time) {
	if f.waiting.IsZero() || t.Before(f.waiting) {
		f.waiting = t
	}
}

// during runs a sync and records its outcome for each family: a sync that fails
// for one family can succeed for the other.
func (h *health) during(sync func() error) error {
	h.begin()
	err := sync()
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, f := range h.families {
		if err == nil || f.upToDate() {
			f.synced = time.Now()
		} else {
			f.waitsSince(f.running)
		}
		f.running = time.Time{}
	}
	return err
}

// begin records that a sync begins. Later changes wait for the next one.
func (h *health) begin() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, f := range h.families {
		f.running = time.Now()
		if !f.waiting.IsZero() {
			f.running = f.waiting
		}
		f.waiting = time.Time{}
	}
}

// inTime reports whether no change has been waiting for patience or longer.
func (f *familyHealth) inTime(patience time.Duration) bool {
	for _, since := range []time.Time{f.waiting, f.running} {
		if !since.IsZero() && time.Since(since) >= patience {
			return false
		}
	}
	return true
}

// state returns the health of each family.
func (h *health) state() []healthcheck.FamilyHealth {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := make([]healthcheck.FamilyHealth, len(h.families))
	for i, f := range h.families {
		out[i] = healthcheck.FamilyHealth{
			Family:      apiFamily(f.family),
			LastUpdated: f.synced,
			Healthy:     f.inTime(h.patience),
		}
	}
	return out
}

// waitingSince returns the time of the oldest change of each family that is not
// effective yet. It is zero without one.
func (h *health) waitingSince() []time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := make([]time.Time, len(h.families))
	for i, f := range h.families {
		if out[i] = f.running; out[i].IsZero() {
			out[i] = f.waiting
		}
	}
	return out
}

// ok reports whether every family had a successful sync and no change is late.
func (h *health) ok() bool {
	state := h.state()
	return len(state) > 0 && !slices.ContainsFunc(state, func(f healthcheck.FamilyHealth) bool {
		return f.LastUpdated.IsZero() || !f.Healthy
	})
}

// apiFamily returns the name of a family in the API: IPv4 or IPv6.
func apiFamily(f nft.Family) string {
	if f == nft.IPv6 {
		return string(corev1.IPv6Protocol)
	}
	return string(corev1.IPv4Protocol)
}

// Health returns the health of each address family, for
// healthcheck.ProxyServer. A family is healthy unless a change waits for a
// successful sync for twice the sync period or longer. Changes before the first
// lists of Services and EndpointSlices are complete do not count. Any goroutine
// can call it.
func (p *Proxier) Health() []healthcheck.FamilyHealth { return p.health.state() }
