package table_test

import (
	"errors"
	"testing"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
	"github.com/nftproxy/nftproxy/proxier/table"
	"github.com/nftproxy/nftproxy/proxier/table/tabletest"
)

// churn sets and deletes a Service of one family, with syncs.
func churn(t *table.Table, times int, clusterIP string, each func(i int) error) error {
	svc := tabletest.Service("more", clusterIP, func(s *cluster.Service) { s.Families = []nft.Family{t.Family()} })
	for i := range times {
		t.SetService(svc)
		err := errors.Join(each(i), t.Sync())
		t.DeleteService(svc.Name)
		if err = errors.Join(err, t.Sync(), t.Check(), t.Resync()); err != nil {
			return err
		}
	}
	return nil
}

func nothing(int) error { return nil }

// wantRewrites compares the numbers of rewrites, and the tables.
func (e *engine) wantRewrites(t *testing.T, want ...int) {
	t.Helper()
	for i, table := range e.tables {
		if got := table.Stats().Rewrites; got != want[i] {
			t.Errorf("%s: got %d rewrites, want %d", table.Family(), got, want[i])
		}
	}
	e.checkWanted(t)
}

// Two goroutines use the Tables of two families, while another program deletes
// the table of one of them. The other family sees no damage, and the commits of
// one family are not foreign to the other.
func TestFamiliesAtTheSameTime(t *testing.T) {
	e := newSample(t, "dual-stack")
	const changes, deletions = 300, 5
	e.kernels[0].OnCommit, e.kernels[1].OnCommit = nil, nil
	errs := make(chan error, 2)
	go func() { errs <- churn(e.tables[0], changes, "10.96.0.99", nothing) }()
	go func() {
		errs <- churn(e.tables[1], changes, "fd00:96::99", func(i int) error {
			if i%(changes/deletions) != 0 {
				return nil
			}
			b := nft.NewBatch(&nft.Table{Family: nft.IPv6, Name: ruleset.TableName})
			b.DeleteTable()
			return e.conn.Commit(b)
		})
	}()
	if err := errors.Join(<-errs, <-errs); err != nil {
		t.Fatal(err)
	}
	e.wantRewrites(t, 1, 1+deletions)
}

// A Table whose commit hangs does not stop the other one.
func TestFamilyHangs(t *testing.T) {
	e := newSample(t, "dual-stack")
	hung, proceed, done := make(chan struct{}), make(chan struct{}), make(chan error)
	e.kernels[1].OnCommit = func(_ *nft.Batch, commit func() error) error {
		close(hung)
		<-proceed
		e.kernels[1].OnCommit = nil
		return commit()
	}
	go func() { done <- churn(e.tables[1], 1, "fd00:96::99", nothing) }()
	<-hung
	if err := churn(e.tables[0], 3, "10.96.0.99", nothing); err != nil {
		t.Fatal(err)
	}
	close(proceed)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	e.wantRewrites(t, 1, 1)
}
