package keep_test

import (
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// newHeavy returns a firewall that was written, which writes one heavy part in
// each sync. The rules backup and mirror are heavy.
func newHeavy(t *testing.T) *firewall {
	t.Helper()
	f := newServing(t)
	f.limits.HeavyCost, f.limits.PartCost, f.limits.Time = 100, 100, -1
	for i, name := range []string{"backup", "mirror"} {
		f.set(name, allow(uint16(1000+i))).cost = 200
	}
	return f
}

func (f *firewall) wantCommits(t *testing.T, what string, want ...string) {
	t.Helper()
	if !slices.Equal(f.commits, want) {
		t.Errorf("%s: got transactions %q, want %q", what, f.commits, want)
	}
	f.forget()
}

// Light rules are written first, in transactions up to PartCost. Each heavy one
// has a transaction of its own. Later ones are deferred, and then Due.
func TestHeavyRules(t *testing.T) {
	f := newHeavy(t)
	f.set("api", allow(443)).cost = 60
	f.set("dns", allow(53)).cost = 30
	f.set("ntp", allow(123)).cost = 50
	f.sync(t)
	f.wantCommits(t, "first sync", "api dns", "ntp", "backup")
	if !f.Due() || !f.UpToDate() {
		t.Errorf("got due %v, up to date %v; want both", f.Due(), f.UpToDate())
	}
	f.set("dns", allow(53).from("10.0.0.5"))
	f.set("backup", allow(1005))
	f.sync(t)
	f.wantCommits(t, "second sync", "dns", "mirror") // backup was the last one
	f.sync(t)
	f.wantCommits(t, "third sync", "", "backup")
	if f.Due() {
		t.Error("a rule is due, but all were written")
	}
	f.check(t)
}

// A heavy rule whose group took long waits. Light ones do not, nor do heavy
// ones of other groups.
func TestHeavyRuleWaits(t *testing.T) {
	f := newHeavy(t)
	f.limits.Time = time.Hour
	f.rules["backup"].group.Charge(time.Now(), 2*f.limits.Burst)
	f.set("web", allow(8080))
	f.sync(t)
	f.wantCommits(t, "sync", "web", "mirror")
	if f.Due() || !f.UpToDate() || !f.rules["backup"].kept.Deferred() {
		t.Errorf("got due %v, up to date %v", f.Due(), f.UpToDate())
	}
	f.limits.Burst *= 3 // as after some time
	if !f.Due() {
		t.Error("a rule that may be written is not due")
	}
	f.sync(t)
	f.check(t, allow(80).limited(10))
}

// Rules between which a row moves are written together, also if one of them is
// heavy.
func TestRowMovesToHeavyRule(t *testing.T) {
	f := newHeavy(t)
	f.set("backup", allow(80))
	f.set("web", allow(8080))
	f.set("dns", allow(53))
	f.sync(t)
	f.wantCommits(t, "sync", "dns", "backup web")
	f.sync(t)
	f.check(t, allow(80).limited(10))
}

// The kernel has no memory for a heavy rule, and does not say so for a message.
// The rule waits for the next sync; light ones do not.
func TestHeavyRuleWithoutMemory(t *testing.T) {
	f := newHeavy(t)
	f.limits.Time = time.Hour
	f.set("web", allow(8080))
	f.answer(t, nil, refuseAll(unix.ENOMEM))
	if err := f.Sync(); err == nil {
		t.Error("the sync succeeded without memory")
	}
	if ports, rewrites := f.allowed(t), f.Stats().Rewrites; ports != "22 1001 8080" || rewrites != 1 {
		t.Errorf("got ports %s and %d rewrites, want 22 1001 8080 and 1", ports, rewrites)
	}
	f.sync(t)
	f.check(t, allow(80).limited(10))
}
