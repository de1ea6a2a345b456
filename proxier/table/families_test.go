package table_test

import (
	"errors"
	"testing"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
	"github.com/nftproxy/nftproxy/proxier/table"
	"github.com/nftproxy/nftproxy/test/tabletest"
)

// churn sets and deletes a Service of one family, with syncs. Before some of
// them, another program deletes the table.
func churn(t *table.Table, clusterIP string, times, deletions int, other *nft.Conn) error {
	svc := tabletest.Service("more", clusterIP, func(s *cluster.Service) { s.Families = []nft.Family{t.Family()} })
	for i := range times {
		t.SetService(svc)
		var err error
		if deletions > 0 && i%(times/deletions) == 0 {
			b := nft.NewBatch(&nft.Table{Family: t.Family(), Name: ruleset.TableName})
			b.DeleteTable()
			err = other.Commit(b)
		}
		err = errors.Join(err, t.Sync())
		t.DeleteService(svc.Name)
		if err = errors.Join(err, t.Sync(), t.Check(), t.Resync()); err != nil {
			return err
		}
	}
	return nil
}

// Two goroutines use the Tables of two families, while another program deletes
// the table of one of them. The other family sees no damage, and the commits of
// one family are not foreign to the other.
func TestFamiliesAtTheSameTime(t *testing.T) {
	e := newSample(t, "dual-stack")
	const changes, deletions = 300, 5
	e.kernels[0].OnCommit, e.kernels[1].OnCommit = nil, nil
	errs := make(chan error, 2)
	go func() { errs <- churn(e.tables[0], "10.96.0.99", changes, 0, nil) }()
	go func() { errs <- churn(e.tables[1], "fd00:96::99", changes, deletions, e.conn) }()
	if err := errors.Join(<-errs, <-errs); err != nil {
		t.Fatal(err)
	}
	for i, want := range []int{1, 1 + deletions} {
		if got := e.tables[i].Stats().Rewrites; got != want {
			t.Errorf("%s: got %d rewrites, want %d", e.tables[i].Family(), got, want)
		}
	}
	e.checkWanted(t)
}
