package keep_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/table/keep"
	"github.com/nftproxy/nftproxy/proxier/table/tabletest"
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
func (f *firewall) handle(t *testing.T) uint64 {
	t.Helper()
	found, _, err := f.kernel.FindTable(f.Program(noSet))
	if err != nil {
		t.Fatal(err)
	}
	return found.Handle
}

// Another program flushes the ruleset again and again. The first two times, a
// Check writes the table at once. From then on the repairs wait.
func TestFlushedRuleset(t *testing.T) {
	f := newServing(t)
	f.limits.FirstPause = time.Second
	var second time.Time
	for range 2 {
		tabletest.LoadNFT(t, "flush ruleset")
		second = time.Now()
		f.mustCheck(t)
		f.check(t)
	}
	tabletest.LoadNFT(t, "flush ruleset")
	f.set("dns", allow(53))
	if err := f.Sync(); err == nil || f.handle(t) != 0 {
		t.Errorf("a sync between two repairs: got error %v, a table: %v", err, f.handle(t) != 0)
	}
	for f.handle(t) == 0 && time.Since(second) < 10*time.Second {
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

// A row of several rules stays until the last one goes, also if one comes and
// one goes at the same time.
func TestSharedRow(t *testing.T) {
	f := newServing(t) // 10.0.0.1 belongs to ssh and web
	web := f.rules["web"].wants
	hosts := func() (rows []string) {
		for _, line := range f.list(t, f.Program(noSet)) {
			if strings.HasPrefix(line, "hosts ") {
				rows = append(rows, line)
			}
		}
		return rows
	}
	for _, step := range []struct {
		name   string
		change func()
		rows   int // of all hosts
	}{
		{"the first goes", func() { f.set("ssh", nil) }, 2},
		{"the last goes, another one comes", func() { f.set("web", nil); f.set("dns", allow(53).from("10.0.0.1")) }, 1},
		{"one comes and the last goes", func() { f.set("api", allow(443).from("10.0.0.1")); f.set("dns", nil) }, 1},
		{"the node has it too", func() { f.node = allow(0).from("10.0.0.1").rows[1:]; f.TouchProgram() }, 1},
		{"the last rule goes", func() { f.set("api", nil) }, 1},
		{"the node has another one", func() { f.node = allow(0).from("10.0.0.9").rows[1:]; f.TouchProgram() }, 1},
	} {
		step.change()
		rewrites := f.Stats().Rewrites
		f.sync(t)
		if n := f.Stats().Rewrites; n != rewrites {
			t.Errorf("%s: everything was written", step.name)
		}
		if rows := hosts(); len(rows) != step.rows {
			t.Errorf("%s: got rows %q, want %d", step.name, rows, step.rows)
		}
		f.check(t, web, allow(0).remembered("allow-ssh"))
	}
}

// A rule that changes before and after a sync is written once in each of them.
func TestTouchedAgain(t *testing.T) {
	f := newServing(t)
	for _, port := range []uint16{81, 82, 83} {
		f.set("web", allow(port))
		f.Touch(f.rules["web"])
		f.sync(t)
		f.Touch(f.rules["web"])
	}
	f.sync(t) // without a difference
	if want := []string{"web", "web", "web", "web"}; !slices.Equal(f.commits, want) || !slices.Equal(f.asked, want) {
		t.Errorf("got transactions %q and calls of Content for %q, want %q", f.commits, f.asked, want)
	}
}

// Chains and sets on demand are written when they are first needed. They stay
// until everything is written, which deletes those that nothing needs. A set
// that packets fill keeps its elements. A set that rows fill exists while it
// has rows.
func TestOnDemand(t *testing.T) {
	f := newServing(t)
	web, ssh := f.rules["web"].wants, f.rules["ssh"].wants // limited to 10, and with the set of clients
	tabletest.LoadNFT(t, "add element ip firewall clients { 10.7.7.7 timeout 1h }")
	client := func() bool {
		return strings.Contains(tabletest.NFT(t, "", "list", "set", "ip", "firewall", "clients"), "10.7.7.7")
	}
	rewrite := func() {
		f.Distrust("test", "test")
		f.sync(t)
	}
	rewrite()
	if f.check(t); !client() {
		t.Error("a rewrite deleted a client")
	}
	f.set("web", allow(80).limited(20).bans("192.0.2.1").bans("192.0.2.2"))
	f.sync(t)
	f.check(t, web)
	f.set("web", allow(80).bans("192.0.2.2"))
	f.set("ssh", nil)
	f.sync(t)
	if f.check(t, web, allow(80).limited(20), ssh); !f.Uses(banned) || !client() {
		t.Error("a change of another host deleted a set")
	}
	f.set("web", nil)
	f.sync(t)
	if f.check(t, web, allow(80).limited(20), ssh); f.Uses(banned) {
		t.Error("a set on demand has rows, want none")
	}
	rewrite()
	f.check(t) // also an empty firewall needs no chain
	f.set("web", web)
	f.set("ssh", ssh)
	f.set("ban", allow(0).bans("192.0.2.1"))
	f.sync(t)
	if f.check(t); client() {
		t.Error("a deleted set kept a client")
	}
}

// If the program gets another set, or loses one, everything is written.
func TestOtherSets(t *testing.T) {
	f := newServing(t)
	for i, sets := range [][]*nft.Set{{{Name: "more", Key: hosts.Key}}, nil} {
		f.more = sets
		f.TouchProgram()
		f.sync(t)
		f.check(t)
		if n := f.Stats().RewriteCauses[keep.RewriteNode]; n != i+1 {
			t.Errorf("got %d rewrites, want %d", n, i+1)
		}
	}
}

// So many chains on demand may be unused that everything is written.
func TestManyUnusedChains(t *testing.T) {
	f := newServing(t)
	for rate := range 1002 {
		f.set(fmt.Sprint(rate), allow(uint16(1000+rate)).limited(100+rate))
	}
	f.sync(t)
	for name := range f.rules {
		if name != "web" && name != "ssh" {
			f.set(name, nil)
		}
	}
	f.sync(t)
	f.check(t)
	if s := f.Stats(); s.RewriteCauses[keep.RewriteUnused] != 1 {
		t.Errorf("got rewrites %v, want one because of unused chains", s.RewriteCauses)
	}
}

// A table that no packet uses is written in several transactions. The last one
// adds the base chains, so that packets meet nothing or everything.
func TestColdStart(t *testing.T) {
	f := newFirewall(t)
	f.limits.ColdBytes = 1000
	for port := range uint16(100) {
		f.set(fmt.Sprint("rule-", port), allow(port).remembered(fmt.Sprint("allow-", port)))
	}
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

// While the table is written in several transactions, another program deletes
// it, or replaces it by one of its own. The write begins again.
func TestColdStartInterrupted(t *testing.T) {
	for _, commands := range []string{
		"flush ruleset",
		"delete table ip firewall\nadd table ip firewall",
		"delete table ip firewall\nadd table ip firewall\n" +
			"add chain ip firewall mine { type filter hook input priority 0; }",
	} {
		for _, at := range []int{2, 10} {
			t.Run(fmt.Sprint(at, " ", commands), func(t *testing.T) {
				f := newFirewall(t)
				f.limits.ColdBytes = 1000
				for port := range uint16(100) {
					f.set(fmt.Sprint("rule-", port), allow(port).from("10.0.0.1"))
				}
				f.atCommits(func(n int) {
					if n == at {
						tabletest.LoadNFT(t, commands)
					}
				})
				f.sync(t)
				f.check(t)
				if failing := slices.Collect(f.Failing()); len(failing) > 0 || f.Stats().Rewrites != 1 {
					t.Errorf("got failing rules %v and %d rewrites, want none and 1", failing, f.Stats().Rewrites)
				}
			})
		}
	}
}

// After a restart, the Keeper writes the table that it finds. It does not
// delete it, rows that count packets keep their numbers, and the next
// transaction deletes what nothing needs any more.
func TestRestart(t *testing.T) {
	old := newServing(t)
	tabletest.LoadNFT(t, "delete element ip firewall counted { 80 }\n"+
		"add element ip firewall counted { 80 counter packets 7 bytes 700, 81 counter packets 8 bytes 800 }")
	table := old.handle(t)
	f := startFirewall(t, "firewall", keep.NewGeneration())
	f.set("web", allow(80).from("10.0.0.3").counted())
	f.set("api", allow(443).counted())
	var extra []string
	f.atCommits(func(n int) {
		for _, line := range f.list(t, f.Program(noSet)) {
			if n == 2 && (strings.Contains(line, "allow-ssh") || strings.Contains(line, "clients")) {
				extra = append(extra, line)
			}
		}
	})
	f.sync(t)
	f.check(t)
	if f.handle(t) != table || len(extra) == 0 || f.Stats().Transactions != 2 {
		t.Errorf("got another table: %v; before transaction 2 of %d: %q",
			f.handle(t) != table, f.Stats().Transactions, extra)
	}
	if list := tabletest.NFT(t, "", "list", "set", "ip", "firewall", "counted"); !strings.Contains(list, "packets 7 ") {
		t.Errorf("the counted packets are lost:\n%s", list)
	}
}

// A table of another form is replaced in one transaction. Until the next one,
// copies of the base chains are called after them.
func TestTakeover(t *testing.T) {
	f := newFirewall(t)
	tabletest.LoadNFT(t, `table ip firewall {
		set old-clients { type ipv4_addr; }
		chain mine { type filter hook input priority 0; }
	}`)
	f.set("ssh", allow(22).remembered("allow-ssh"))
	table := f.handle(t)
	copies := "none"
	f.atCommits(func(n int) {
		if n == 2 {
			copies = tabletest.NFT(t, "", "list", "chain", "ip", "firewall", "takeover-input")
		}
	})
	f.sync(t)
	f.check(t)
	if !strings.Contains(copies, "hook input priority filter + 1;") || !strings.Contains(copies, "jump services") {
		t.Errorf("before the second transaction: got copies\n%s", copies)
	}
	if f.handle(t) == table || f.Stats().Transactions != 2 {
		t.Errorf("got the same table: %v, %d transactions", f.handle(t) == table, f.Stats().Transactions)
	}
	if list := tabletest.NFT(t, "", "list", "set", "ip", "firewall", "clients"); !strings.Contains(list, "10.9.9.9") {
		t.Errorf("the client of the foreign table is lost:\n%s", list)
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
	for port := range uint16(3) {
		a.set("rule", allow(port))
		b.set("rule", allow(port))
		a.sync(t)
		b.sync(t)
	}
	for range 10 {
		scrubbed()
	}
	for port := range uint16(3) {
		a.set("rule", allow(100+port))
		a.sync(t)
		if !scrubbed() {
			t.Fatal("a commit of another Keeper is foreign")
		}
	}
	for _, f := range []*firewall{a, b} { // more rules than a Check compares
		for port := range uint16(200) {
			f.set(fmt.Sprint("rule-", port), allow(1000+port))
		}
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
	a.set("web", allow(80))
	a.sync(t)
	if err := <-checked; err != nil || b.Rest() > 0 {
		t.Errorf("got error %v, a verification: %v; want neither", err, b.Rest() > 0)
	}
}
