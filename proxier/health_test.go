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

// A family fails when its table was damaged for outageTime longer than it was
// whole, and serves again when it was whole for as much longer. Damage began at
// most pollPeriod before the check that found it, unless the last check found
// damage, too.
func TestOutage(t *testing.T) {
	h, now := &health{patience: time.Minute}, time.Now()
	for _, c := range []struct {
		name    string
		checks  string // in turn: x finds damage
		every   time.Duration
		during  time.Duration
		failing bool
	}{
		{name: "whole", checks: ".", every: 10 * time.Second, during: time.Minute},
		{name: "one flush in calm", checks: "x", every: 10 * time.Second, during: 10 * time.Second},
		{name: "ten flushes", checks: "x", every: pollPeriod, during: 10 * pollPeriod},
		{name: "a flush every second", checks: "x.", every: time.Second / 2, during: time.Minute},
		{name: "a flush after every second check", checks: "x.", every: pollPeriod, during: time.Minute},
		{name: "whole again", checks: ".", every: time.Second, during: outageTime},
		{name: "a short outage", checks: "x", every: pollPeriod, during: outageTime - pollPeriod},
		{name: "a long one", checks: "x", every: pollPeriod, during: pollPeriod, failing: true},
		{name: "it lasts", checks: "x", every: pollPeriod, during: time.Minute, failing: true},
		{name: "repaired a moment ago", checks: ".", every: pollPeriod, during: outageTime - pollPeriod, failing: true},
		{name: "repaired a while ago", checks: ".", every: pollPeriod, during: pollPeriod},
		{name: "damaged most of the time", checks: "xxxx.", every: pollPeriod, during: 3 * outageTime, failing: true},
		{name: "whole most of the time", checks: "....x", every: pollPeriod, during: 3 * outageTime},
	} {
		for i := range int(c.during / c.every) {
			now = now.Add(c.every)
			h.check(c.checks[i%len(c.checks)] == 'x', now)
		}
		if got, _ := h.state(); got.Failing != c.failing || !got.Healthy {
			t.Errorf("%s: got %+v after an outage of %v, want failing %v", c.name, got, h.outage, c.failing)
		}
	}
}
