package table

import (
	"testing"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/table/tabletest"
)

// The Tables of one call of New do not take each other for other programs,
// and each of them detects other programs.
func TestFamiliesAreNotForeign(t *testing.T) {
	tabletest.NewNamespace(t)
	tables, err := New(sampleConfig(), nft.IPv4, nft.IPv6)
	if err != nil {
		t.Fatal(err)
	}
	sink := cluster.Sinks{tables[0], tables[1]}
	if err := sink.Setup(); err != nil {
		t.Fatal(err)
	}
	tabletest.PassSample(sink)
	tabletest.Sync(t, sink)
	each := func(f func(*Table) error) {
		t.Helper()
		for _, table := range tables {
			if err := f(table); err != nil {
				t.Fatal(err)
			}
		}
	}
	change := func() {
		t.Helper()
		svc := tabletest.Service("more", "10.96.0.99", func(s *cluster.Service) {
			s.Families = append(s.Families, nft.IPv6)
			s.ClusterIPs = append(s.ClusterIPs, addr("fd00:96::99"))
		})
		sink.SetService(svc)
		tabletest.Sync(t, sink)
		sink.DeleteService(svc.Name)
		tabletest.Sync(t, sink)
		each((*Table).Check)
		each((*Table).Resync)
	}
	wantRewrites := func(want int) {
		t.Helper()
		for _, table := range tables {
			if got := table.stats.Rewrites; got != want {
				t.Errorf("%s: got %d rewrites, want %d", table.Family(), got, want)
			}
		}
	}
	change()
	change()
	wantRewrites(1)
	tabletest.LoadNFT(t, "add table ip other")
	change()
	wantRewrites(1)
	tabletest.LoadNFT(t, "flush ruleset")
	each((*Table).Check)
	wantRewrites(2)
	for _, table := range tables {
		checkTable(t, table)
	}
}

// Changes of other tables do not cause rewrites, also when they alternate
// with our own commits.
func TestChangesOfOtherTables(t *testing.T) {
	tabletest.NewNamespace(t)
	table := newSample(t)
	rewrites := table.stats.Rewrites
	for range 3 {
		tabletest.LoadNFT(t, "add table ip other")
		svc := tabletest.Service("svc", "10.96.0.99", nil)
		table.SetService(svc)
		tabletest.Sync(t, table)
		tabletest.LoadNFT(t, "delete table ip other")
		table.DeleteService(svc.Name)
		mustCheck(t, table)
		tabletest.Sync(t, table)
	}
	checkTable(t, table)
	if got := table.stats.Rewrites - rewrites; got != 0 {
		t.Errorf("got %d rewrites, want 0", got)
	}
}

// Commits of other programs that do not change our table cause no commits of
// ours.
func TestForeignCommits(t *testing.T) {
	tabletest.NewNamespace(t)
	table := newSample(t)
	transactions := table.stats.Transactions
	for range 20 {
		tabletest.LoadNFT(t, "add table ip other; add chain ip other c; delete table ip other")
		mustCheck(t, table)
		if err := table.Resync(); err != nil {
			t.Fatal(err)
		}
	}
	scrubAll(t, table)
	if got := table.stats.Transactions - transactions; got != 0 {
		t.Errorf("got %d transactions, want 0", got)
	}
	if table.observed.scrubber.done == 0 {
		t.Error("the scrubber has not completed a pass")
	}
}
