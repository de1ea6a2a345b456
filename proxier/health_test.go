package proxier

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/table/tabletest"
)

// The health of a family during successful and failed syncs.
func TestHealth(t *testing.T) {
	h := &health{patience: time.Hour}
	want := func(when string, synced, healthy bool) {
		t.Helper()
		if got, _ := h.state(); got.Healthy != healthy || got.LastUpdated.IsZero() == synced {
			t.Errorf("%s: got %+v, want synced %v, healthy %v", when, got, synced, healthy)
		}
	}
	want("before the first sync", false, true)
	h.changed()
	if err := h.during(fail); err != errSync {
		t.Errorf("got error %v, want %v", err, errSync)
	}
	want("after a first sync that failed", false, true)
	h.during(succeed)
	want("after a first sync that succeeded", true, true)
	h.changed()
	want("while a change waits", true, true)
	h.patience = 0
	want("while a change waits too long", true, false)
	h.during(fail)
	h.changed()
	want("after a sync that failed", true, false)
	h.during(succeed)
	want("after a sync that succeeded", true, true)
	h.during(func() error { h.changed(); return nil })
	want("with a change during the last sync", true, false)
}

// errSync is the error of fail.
var errSync = errors.New("failed by the test")

func fail() error { return errSync }

func succeed() error { return nil }

// A failed sync does not reset the time for which its change waits.
func TestHealthCountsFromTheChange(t *testing.T) {
	h := &health{patience: time.Hour}
	h.during(succeed)
	h.changed()
	since := h.waiting
	for range 2 {
		h.during(func() error { h.changed(); return errSync })
		if got := h.waiting; !got.Equal(since) || since.IsZero() {
			t.Errorf("got a change that waits since %v, want %v", got, since)
		}
	}
}

// If the kernel refuses the commits of one family, that family has no
// successful sync, and becomes late.
func TestProxierHealth(t *testing.T) {
	tabletest.NewNamespace(t)
	refuse := true
	config, _ := withIPv6(func(commit func() error) error {
		if refuse {
			return unix.ENOMEM
		}
		return commit()
	})
	config.SyncPeriod = time.Hour
	p := newTestProxier(t, config, nft.IPv4, nft.IPv6)
	want := func(when string, synced4, synced6 bool) {
		t.Helper()
		s := p.Health()
		if len(s) != 2 || s[0].Family != "IPv4" || s[1].Family != "IPv6" {
			t.Fatalf("%s: got %+v, want IPv4 and IPv6", when, s)
		}
		for i, synced := range []bool{synced4, synced6} {
			if s[i].LastUpdated.IsZero() == synced || !s[i].Healthy {
				t.Errorf("%s: got %+v, want synced %v and healthy", when, s[i], synced)
			}
		}
		if got, want := p.Healthy(), synced4 && synced6; got != want {
			t.Errorf("%s: got healthy %v, want %v", when, got, want)
		}
	}
	want("before the first sync", false, false)
	syncAll := func() (errs []error) {
		for _, f := range p.families {
			errs = append(errs, f.health.during(func() error {
				f.handOver()
				return f.table.Sync()
			}))
		}
		return errs
	}
	if errs := syncAll(); errs[0] != nil || errs[1] == nil {
		t.Errorf("got errors %v, want one of IPv6", errs)
	}
	want("after a sync of IPv4 only", true, false)
	p.families[1].health.patience = 0
	if s := p.Health(); !s[0].Healthy || s[1].Healthy {
		t.Errorf("a change of IPv6 waits too long: got %+v", s)
	}
	p.families[1].health.patience = time.Hour
	refuse = false
	if err := errors.Join(syncAll()...); err != nil {
		t.Error(err)
	}
	want("after a sync of both", true, true)
}

// Changes before the first lists are complete do not make a Proxier late,
// because a restart would not help. Later changes do.
func TestHealthBeforeTheFirstLists(t *testing.T) {
	p, err := assemble(Config{NodeName: "node1"}, nft.IPv4)
	if err != nil {
		t.Fatal(err)
	}
	p.families[0].health.patience = 0
	inTime := func(when string, want bool) {
		t.Helper()
		if s := p.Health(); s[0].Healthy != want || p.Healthy() {
			t.Errorf("%s: got in time %v, healthy %v; want %v, false", when, s[0].Healthy, p.Healthy(), want)
		}
	}
	inTime("at the start", true)
	p.OnServiceAdd(apiService(func(*corev1.Service) {}))
	p.Sync()
	inTime("after a Service", true)
	p.OnServiceSynced()
	inTime("after all Services", true)
	p.OnEndpointSlicesSynced()
	inTime("after both lists, without a sync", false)
}

// While a sync takes too long, the Proxier is not healthy.
func TestHealthDuringLongSync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &health{patience: time.Minute}
		healthy := func() bool {
			s, _ := h.state()
			return s.Healthy
		}
		if err := h.during(succeed); err != nil || !healthy() {
			t.Fatalf("after the first sync: got error %v, healthy %v; want nil, true", err, healthy())
		}
		h.changed()
		h.during(func() error {
			if !healthy() {
				t.Error("at the beginning of the sync: got unhealthy")
			}
			time.Sleep(2 * h.patience)
			if healthy() {
				t.Error("during a long sync: got healthy")
			}
			return nil
		})
		if !healthy() {
			t.Error("after the long sync: got unhealthy")
		}
	})
}
