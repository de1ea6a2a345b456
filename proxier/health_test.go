package proxier

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// A change waits until a sync that began after it succeeds. A sync that takes
// too long is late, too.
func TestHealth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &health{patience: time.Minute}
		want := func(when string, synced, healthy bool) {
			t.Helper()
			if got, _ := h.state(); got.Healthy != healthy || got.LastUpdated.IsZero() == synced {
				t.Errorf("%s: got %+v, want synced %v, healthy %v", when, got, synced, healthy)
			}
		}
		failed := errors.New("failed")
		h.changed()
		for range 3 {
			time.Sleep(h.patience/3 - time.Second)
			want("after the change, and after a first sync that failed", false, true)
			if err := h.during(func() error { h.changed(); return failed }); err != failed {
				t.Errorf("got error %v, want %v", err, failed)
			}
		}
		time.Sleep(3 * time.Second)
		want("a failure does not reset the time for which the change waits", false, false)
		h.during(func() error { return nil })
		want("after a first sync that succeeded", true, true)
		h.changed()
		h.during(func() error {
			want("at the beginning of a sync", true, true)
			time.Sleep(2 * h.patience)
			want("during a long sync", true, false)
			h.changed()
			return nil
		})
		want("after a long sync", true, true)
		time.Sleep(h.patience)
		want("a change during the last sync waits too long", true, false)
	})
}

// A family also fails if its table is repaired, but damaged most of the time,
// and not if repairs are fast.
func TestOutageBetweenRepairs(t *testing.T) {
	for _, c := range []struct {
		damaged, whole time.Duration
		failing        bool
	}{
		{damaged: 200 * time.Millisecond, whole: 50 * time.Millisecond, failing: true},
		{damaged: 50 * time.Millisecond, whole: 200 * time.Millisecond},
	} {
		h, now := &health{patience: time.Minute}, time.Now()
		for range 100 {
			h.checked(now, now)
			now = now.Add(c.damaged)
			h.checked(time.Time{}, now)
			now = now.Add(c.whole)
		}
		if h.failing != c.failing {
			t.Errorf("damaged for %v of %v: got failing %v", c.damaged, c.damaged+c.whole, h.failing)
		}
		h.checked(time.Time{}, now.Add(outageTime))
		if h.failing {
			t.Error("after the outage: got a family that fails")
		}
	}
}

// A family fails while damage lasts for more than outageTime, and until its
// table was whole for as long.
func TestOutage(t *testing.T) {
	start := time.Now()
	h := &health{patience: time.Minute}
	for _, c := range []struct {
		at, since time.Duration // since: 0 if the table is whole
		failing   bool
	}{
		{at: 1 * time.Second},
		{at: 2 * time.Second, since: 2 * time.Second},
		{at: 6 * time.Second, since: 2 * time.Second},
		{at: 7 * time.Second}, // repaired in time
		{at: 8 * time.Second, since: 8 * time.Second},
		{at: 14 * time.Second, since: 8 * time.Second, failing: true},
		{at: 15 * time.Second, failing: true},
		{at: 16 * time.Second, since: 16 * time.Second, failing: true},
		{at: 17 * time.Second, failing: true},
		{at: 21 * time.Second, failing: true},
		{at: 22 * time.Second},
	} {
		var since time.Time
		if c.since > 0 {
			since = start.Add(c.since)
		}
		h.checked(since, start.Add(c.at))
		if got, _ := h.state(); got.Failing != c.failing || !got.Healthy {
			t.Errorf("after %v: got %+v, want failing %v", c.at, got, c.failing)
		}
	}
}
