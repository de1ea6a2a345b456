package table

import (
	"testing"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/table/tabletest"
)

// The backends of a Proxier do not take each other for other programs, and both
// detect one.
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
	rewrites := func(want int) {
		t.Helper()
		for _, table := range tables {
			if table.stats.Rewrites != want {
				t.Errorf("%s: %d rewrites, want %d", table.Family(), table.stats.Rewrites, want)
			}
		}
	}
	change()
	change()
	rewrites(1)
	tabletest.LoadNFT(t, "add table ip other")
	change() // which is no damage
	rewrites(1)
	tabletest.LoadNFT(t, "flush ruleset")
	each((*Table).Check)
	rewrites(2)
	for _, table := range tables {
		checkTable(t, table)
	}
}

// A table that other programs leave alone is not written again when they change theirs.
func TestOthersTables(t *testing.T) {
	tabletest.NewNamespace(t)
	table := newTable(t, sampleConfig(), nft.IPv4)
	tabletest.PassSample(table)
	tabletest.Sync(t, table)
	rewrites := table.stats.Rewrites
	for range 3 {
		tabletest.LoadNFT(t, "add table ip other")
		svc := tabletest.Service("svc", "10.96.0.99", nil)
		table.SetService(svc)
		tabletest.Sync(t, table)
		tabletest.LoadNFT(t, "delete table ip other")
		table.DeleteService(svc.Name)
		if err := table.Check(); err != nil {
			t.Fatal(err)
		}
		tabletest.Sync(t, table)
	}
	checkTable(t, table)
	if table.stats.Rewrites != rewrites {
		t.Errorf("%d rewrites", table.stats.Rewrites-rewrites)
	}
}

// Commits of other programs that leave the table alone make nothing be written.
func TestForeignCommits(t *testing.T) {
	tabletest.NewNamespace(t)
	table := newTable(t, sampleConfig(), nft.IPv4)
	tabletest.PassSample(table)
	tabletest.Sync(t, table)
	transactions := table.stats.Transactions
	for range 20 {
		tabletest.LoadNFT(t, "add table ip other; add chain ip other c; delete table ip other")
		check(t, table)
		if err := table.Resync(); err != nil {
			t.Fatal(err)
		}
	}
	scrubAll(t, table)
	if n := table.stats.Transactions - transactions; n != 0 {
		t.Errorf("%d transactions, want none", n)
	}
	if table.observed.scrubber.done == 0 {
		t.Error("the rows were not scrubbed")
	}
}
