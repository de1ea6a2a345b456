package table

import (
	"fmt"
	"testing"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/table/keep"
	"github.com/nftproxy/nftproxy/proxier/table/tabletest"
)

// chainsIn returns the chains of the table in the kernel.
func chainsIn(t *testing.T, table *Table) []nft.Chain {
	chains, err := table.keeper.Kernel().Chains(table.table())
	if err != nil {
		t.Fatal(err)
	}
	return chains
}

// If a process fails to delete the unused balancers of an earlier process, it
// can use them later.
func TestUnusedBalancersAreUsedAgain(t *testing.T) {
	tabletest.NewNamespace(t)
	svc := tabletest.Service("svc", "10.96.0.1", nil)
	set := func(table *Table, endpoints int) {
		table.SetService(svc)
		for i := range endpoints {
			tabletest.SetEndpoint(table, svc.Name, tabletest.Endpoint(fmt.Sprintf("10.244.0.%d", i+1)))
		}
	}
	first := newTable(t, sampleConfig(), nft.IPv4)
	for n := range 5 {
		set(first, n)
		tabletest.Sync(t, first)
	}
	second := newTable(t, sampleConfig(), nft.IPv4)
	set(second, 1)
	injectAtCommit(second, 2, tabletest.ErrCommit, nil) // the deletion after the rewrite
	tabletest.Sync(t, second)
	if n := len(chainsIn(t, second)); n < 25 {
		t.Fatalf("got %d chains, want those of the earlier process, too", n)
	}
	set(second, 4)
	tabletest.Sync(t, second)
	checkTable(t, second)
}

// Balancers that no Service needs any more stay, but not without limit.
func TestManyUnusedBalancers(t *testing.T) {
	tabletest.NewNamespace(t)
	table := newSample(t)
	svc := tabletest.Service("svc", "10.96.0.1", func(s *cluster.Service) { s.Balance = cluster.BalanceSourceHash })
	for i := range 2 {
		tabletest.SetEndpoint(table, svc.Name, tabletest.Endpoint(fmt.Sprintf("10.244.9.%d", i)))
	}
	most := 0
	for size := range 1000 + 100 {
		resized := *svc
		resized.HashTableSize = 16 + size
		table.SetService(&resized)
		tabletest.Sync(t, table)
		most = max(most, table.Stats().Rows["class-chains"])
	}
	if n := table.Stats().RewriteCauses[keep.RewriteUnused]; n != 1 || most > 1000+50 {
		t.Errorf("got %d rewrites and up to %d balancers, want 1 and at most %d", n, most, 1000+50)
	}
	checkTable(t, table)
}
