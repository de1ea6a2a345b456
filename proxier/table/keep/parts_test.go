package keep_test

import (
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// newHeavy returns a firewall that was written, whose syncs write one part
// each. The rules backup and mirror are heavy. Each rule has an account.
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

// due checks whether a sync is due because rules wait.
func (f *firewall) due(t *testing.T, want bool) {
	t.Helper()
	if wait, ok := f.Next(); (ok && wait == 0) != want || !f.UpToDate() {
		t.Errorf("got next sync in %v (%v), up to date %v; want due %v, up to date", wait, ok, f.UpToDate(), want)
	}
}

// A part has light rules up to PartCost, or one heavy rule. Rules whose
// accounts were served less go first, also if they change later.
func TestPartsOfAccounts(t *testing.T) {
	f := newHeavy(t)
	f.set("api", allow(443)).cost = 60
	f.set("dns", allow(53)).cost = 30
	f.set("ntp", allow(123)).cost = 50
	var commits []string
	for range 3 {
		f.sync(t)
		commits = append(commits, f.commits...)
		f.forget()
	}
	slices.Sort(commits)
	if want := []string{"api dns ntp", "backup", "mirror"}; !slices.Equal(commits, want) {
		t.Errorf("got parts %q, want %q", commits, want)
	}
	f.due(t, false)
	f.set("backup", allow(1005))
	f.set("late", allow(7))
	f.sync(t)
	f.wantCommits(t, "backup was served", "late")
	f.due(t, true)
	f.sync(t)
	f.wantCommits(t, "the turn of backup", "backup")
	f.check(t)
}

// Rules of one account wait for each other in the order of their changes, and
// for no account that waits as long.
func TestOneAccountWithManyRules(t *testing.T) {
	f := newHeavy(t)
	f.rules["mirror"].account = f.rules["backup"].account
	f.sync(t)
	f.sync(t)
	f.forget()
	f.set("mirror", allow(2001))
	f.set("backup", allow(2000))
	f.set("web", allow(8080))
	f.sync(t)
	f.wantCommits(t, "first", "web")
	f.sync(t)
	f.wantCommits(t, "second", "mirror")
	f.set("web", allow(8081))
	f.sync(t)
	f.wantCommits(t, "third", "web")
	f.sync(t)
	f.wantCommits(t, "fourth", "backup")
	f.check(t, allow(8080).limited(10))
}

// An account that took long waits. Others do not.
func TestAccountWithDebt(t *testing.T) {
	f := newHeavy(t)
	f.limits.Time = time.Hour
	f.sync(t)
	f.forget()
	f.limits.Burst = -time.Hour // every account has debt
	f.set("backup", allow(1005))
	f.sync(t)
	f.wantCommits(t, "with debt", "")
	if wait, ok := f.Next(); !ok || wait == 0 {
		t.Errorf("got next sync in %v (%v), want later", wait, ok)
	}
	f.limits.Burst = time.Hour
	f.due(t, true)
	f.sync(t)
	f.wantCommits(t, "without debt", "backup")
	f.check(t)
}

// Rules between which a row moves are written together, also if one of them is
// heavy.
func TestRowMovesToHeavyRule(t *testing.T) {
	f := newHeavy(t)
	f.set("backup", allow(80))
	f.set("web", allow(8080))
	f.set("dns", allow(53))
	f.sync(t)
	f.limits.Time = time.Hour
	f.sync(t)
	f.wantCommits(t, "sync", "backup web", "mirror", "dns")
	f.check(t, allow(80).limited(10))
}

// The kernel has no memory for a heavy rule, and does not say so for a message.
// The rule is held back; others are not.
func TestHeavyRuleWithoutMemory(t *testing.T) {
	f := newHeavy(t)
	f.limits.Time = time.Hour
	f.set("web", allow(8080))
	f.answer(t, nil, refuseAll(unix.ENOMEM))
	f.sync(t)
	if ports, rewrites := f.allowed(t), f.Stats().Rewrites; ports != "22 1000 8080" || rewrites != 1 || f.UpToDate() {
		t.Errorf("got ports %s and %d rewrites, want 22 1000 8080 and 1, and that a rule waits", ports, rewrites)
	}
	f.sync(t)
	f.check(t, allow(80).limited(10))
}

// A rule that is held back is tried again after FirstRetry, and then after
// twice the time. Meanwhile syncs of other rules do not try it, unless it
// changes.
func TestHeldRuleWaits(t *testing.T) {
	f := newServing(t)
	f.limits.FirstRetry = time.Hour
	web := f.set("web", allow(8080))
	f.answer(t, refuse(unix.ENOMEM, web.tag))
	f.sync(t)
	f.answer(t)
	f.forget()
	f.set("dns", allow(53))
	f.sync(t)
	f.wantCommits(t, "another rule", "dns")
	if wait, ok := f.Next(); !ok || wait == 0 {
		t.Errorf("got next sync in %v (%v), want later", wait, ok)
	}
	f.set("web", allow(8081))
	f.sync(t)
	f.wantCommits(t, "the rule changes", "web")
	f.check(t, allow(80).limited(10))
}
