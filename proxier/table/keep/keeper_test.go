package keep_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/table/keep"
	"github.com/nftproxy/nftproxy/test/tabletest"
)

func (f *firewall) mustCheck(t *testing.T) {
	t.Helper()
	if err := f.Check(); err != nil {
		t.Fatal(err)
	}
}

// atCommits calls see before each commit, with its number.
func (f *firewall) atCommits(see func(n int)) {
	n := 0
	f.kernel.OnCommit = func(_ *nft.Batch, commit func() error) error {
		n++
		see(n)
		return commit()
	}
}

// handle returns the handle of the table, which differs if it was replaced.
func (f *firewall) handle(t testing.TB) uint64 {
	t.Helper()
	found, _, err := f.kernel.FindTable(f.Program(noSet))
	if err != nil {
		t.Fatal(err)
	}
	return found.Handle
}

// Another program flushes a large ruleset again and again. The first two times,
// a Check writes the table at once. From then on the repairs wait.
func TestFlushedRuleset(t *testing.T) {
	t.Parallel()
	f := newServing(t)
	f.limits.FreeRepair, f.limits.FirstPause = 0, time.Second
	var second time.Time
	for range 2 {
		tabletest.LoadNFT(t, "flush ruleset")
		second = time.Now()
		f.mustCheck(t)
		for f.handle(t) == 0 && time.Since(second) < 30*time.Second { // earlier repairs took too much CPU time
			f.mustCheck(t)
		}
		f.check(t)
	}
	tabletest.LoadNFT(t, "flush ruleset")
	f.set("dns", "53")
	if err := f.Sync(); err == nil || f.handle(t) != 0 {
		t.Errorf("a sync between two repairs: got error %v, a table: %v", err, f.handle(t) != 0)
	}
	for f.handle(t) == 0 && time.Since(second) < 30*time.Second {
		f.mustCheck(t)
	}
	if waited := time.Since(second); waited < f.limits.FirstPause {
		t.Errorf("the third repair came %v after the second, want %v", waited, f.limits.FirstPause)
	}
	f.check(t)
	if s := f.Stats(); s.Repairs[keep.DamagedTable] != 3 || s.RewriteCauses[keep.RewriteDamage] != 3 {
		t.Errorf("got repairs %v and rewrites %v, want 3", s.Repairs, s.RewriteCauses)
	}
}

// A table that no packet uses is written in several transactions. The last one
// adds the base chains, so that packets meet nothing or everything.
func TestColdStart(t *testing.T) {
	t.Parallel()
	f := newFirewall(t)
	f.limits.ColdBytes = 1000
	f.setMany(0, 99, "* remembered allow-*")
	commits := 0
	f.atCommits(func(n int) {
		commits = n
		if base, err := f.kernel.BaseChains(nft.IPv4); err != nil || len(base) > 0 {
			t.Errorf("before transaction %d: got base chains %v and error %v, want none", n, base, err)
		}
	})
	f.sync(t)
	if f.check(t); commits < 10 || len(f.commits) != 1 {
		t.Errorf("got %d transactions, want 10 or more; completed %d", commits, len(f.commits))
	}
	if f.Stats().Rewrites != 1 || f.InDoubt() != "" {
		t.Errorf("got %d rewrites and doubt %q, want 1 and none", f.Stats().Rewrites, f.InDoubt())
	}
}

// Keepers that share a Generation do not take each other for other programs,
// but notice those.
func TestTwoKeepers(t *testing.T) {
	generation := keep.NewGeneration()
	tabletest.NewNamespace(t)
	a, b := startFirewall(t, "a", generation), startFirewall(t, "b", generation)
	scrubbed := func() bool {
		a.mustCheck(t)
		b.mustCheck(t)
		return a.Scrubbed() && b.Scrubbed()
	}
	for port := range 3 {
		a.set("rule", fmt.Sprint(port))
		b.set("rule", fmt.Sprint(port))
		a.sync(t)
		b.sync(t)
	}
	for range 10 {
		scrubbed()
	}
	for port := range 3 {
		a.set("rule", fmt.Sprint(100+port))
		a.sync(t)
		if !scrubbed() {
			t.Fatal("a commit of another Keeper is foreign")
		}
	}
	for _, f := range []*firewall{a, b} { // more rules than a Check compares
		f.setMany(1000, 1199, "*")
		f.sync(t)
	}
	tabletest.LoadNFT(t, "add table ip other")
	if scrubbed() {
		t.Error("a commit of another program is not foreign")
	}
	a.check(t)
	b.check(t)
}

// A Keeper does not look at the kernel between a commit of another Keeper and
// its end: it would take the commit for that of another program, and verify its
// table.
func TestCheckDuringCommit(t *testing.T) {
	generation := keep.NewGeneration()
	tabletest.NewNamespace(t)
	a, b := startFirewall(t, "a", generation), startFirewall(t, "b", generation)
	a.sync(t)
	b.sync(t)
	for b.mustCheck(t); b.Rest() > 0; { // the writing of a
		b.mustCheck(t)
	}
	checked := make(chan error, 1)
	a.kernel.OnCommit = func(_ *nft.Batch, commit func() error) error {
		a.kernel.OnCommit = nil
		err := commit()
		go func() { checked <- b.Check() }()
		time.Sleep(50 * time.Millisecond) // so long that a Check would end
		return err
	}
	a.set("web", "80")
	a.sync(t)
	if err := <-checked; err != nil || b.Rest() > 0 {
		t.Errorf("got error %v, a verification: %v; want neither", err, b.Rest() > 0)
	}
}
