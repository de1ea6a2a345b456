package table

import (
	"errors"
	"testing"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/table/keep"
	"github.com/nftproxy/nftproxy/proxier/table/tabletest"
)

// Two goroutines use the Tables of two families, while another program deletes
// the table of one of them. The other family sees no damage, and the commits of
// one family are not foreign to the other.
func TestFamiliesAtTheSameTime(t *testing.T) {
	t.Parallel()
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
	t.Parallel()
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
