package table

import (
	"errors"
	"testing"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/table/keep"
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
			if got := table.Stats().Rewrites; got != want {
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
	rewrites := table.Stats().Rewrites
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
	if got := table.Stats().Rewrites - rewrites; got != 0 {
		t.Errorf("got %d rewrites, want 0", got)
	}
}

// Commits of other programs that do not change our table cause no commits of
// ours.
func TestForeignCommits(t *testing.T) {
	tabletest.NewNamespace(t)
	table := newSample(t)
	transactions := table.Stats().Transactions
	for range 20 {
		tabletest.LoadNFT(t, "add table ip other; add chain ip other c; delete table ip other")
		mustCheck(t, table)
		if err := table.Resync(); err != nil {
			t.Fatal(err)
		}
	}
	scrubAll(t, table)
	if got := table.Stats().Transactions - transactions; got != 0 {
		t.Errorf("got %d transactions, want 0", got)
	}
}

// Two goroutines use the Tables of two families, while another program deletes
// the table of one of them. The other family sees no damage, and the commits of
// one family are not foreign to the other.
func TestFamiliesAtTheSameTime(t *testing.T) {
	tabletest.NewNamespace(t)
	config := sampleConfig()
	config.Limits = atOnce()
	tables, err := New(config, nft.IPv4, nft.IPv6)
	if err != nil {
		t.Fatal(err)
	}
	sink := cluster.Sinks{tables[0], tables[1]}
	if err := sink.Setup(); err != nil {
		t.Fatal(err)
	}
	tabletest.PassSample(sink)
	tabletest.Sync(t, sink)
	const changes, deletions = 300, 5
	other, err := nft.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	churn := func(table *Table, f nft.Family, clusterIP string, each func(i int) error) error {
		svc := tabletest.Service("more", clusterIP, func(s *cluster.Service) { s.Families = []nft.Family{f} })
		for i := range changes {
			table.SetService(svc)
			err := errors.Join(each(i), table.Sync())
			table.DeleteService(svc.Name)
			if err = errors.Join(err, table.Sync(), table.Check(), table.Resync()); err != nil {
				return err
			}
		}
		return nil
	}
	errs := make(chan error, 2)
	go func() {
		errs <- churn(tables[0], nft.IPv4, "10.96.0.99", func(int) error { return nil })
	}()
	go func() {
		errs <- churn(tables[1], nft.IPv6, "fd00:96::99", func(i int) error {
			if i%(changes/deletions) != 0 {
				return nil
			}
			b := nft.NewBatch(tables[1].table())
			b.DeleteTable()
			return other.Commit(b)
		})
	}()
	if err := errors.Join(<-errs, <-errs); err != nil {
		t.Fatal(err)
	}
	for i, want := range []int{1, 1 + deletions} {
		if got := tables[i].Stats().Rewrites; got != want {
			t.Errorf("%s: got %d rewrites, want %d", tables[i].Family(), got, want)
		}
		checkTable(t, tables[i])
	}
}

// A Table whose commit hangs does not stop the other one.
func TestFamilyHangs(t *testing.T) {
	tabletest.NewNamespace(t)
	config := sampleConfig()
	hung, proceed := make(chan struct{}), make(chan struct{})
	config.Open = func() (keep.Kernel, error) {
		conn, err := nft.Open()
		return &tabletest.Kernel{Conn: conn}, err
	}
	tables, err := New(config, nft.IPv4, nft.IPv6)
	if err != nil {
		t.Fatal(err)
	}
	sink := cluster.Sinks{tables[0], tables[1]}
	if err := sink.Setup(); err != nil {
		t.Fatal(err)
	}
	tabletest.PassSample(sink)
	tabletest.Sync(t, sink)
	tables[1].keeper.Kernel().(*tabletest.Kernel).OnCommit = func(_ *nft.Batch, commit func() error) error {
		close(hung)
		<-proceed
		return commit()
	}
	done := make(chan error)
	go func() {
		tables[1].SetService(tabletest.Service("more", "fd00:96::99", func(s *cluster.Service) {
			s.Families = []nft.Family{nft.IPv6}
		}))
		done <- tables[1].Sync()
	}()
	<-hung
	svc := tabletest.Service("more", "10.96.0.99", nil)
	for range 3 {
		tables[0].SetService(svc)
		tabletest.Sync(t, tables[0])
		tables[0].DeleteService(svc.Name)
		tabletest.Sync(t, tables[0])
	}
	tables[1].keeper.Kernel().(*tabletest.Kernel).OnCommit = nil
	close(proceed)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	for _, table := range tables {
		mustCheck(t, table)
		checkTable(t, table)
		if got := table.Stats().Rewrites; got != 1 {
			t.Errorf("%s: got %d rewrites, want 1", table.Family(), got)
		}
	}
}
