package table

import (
	"fmt"
	"testing"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/table/tabletest"
)

// A Service that grows and shrinks leaves few idle balancers, and one that is
// needed again is not deleted.
func TestIdleBalancers(t *testing.T) {
	tabletest.NewNamespace(t)
	table := newTable(t, sampleConfig(), nft.IPv4)
	svc := tabletest.Service("svc", "10.96.0.1", nil)
	table.SetService(svc)
	endpoint := func(i int) *cluster.Endpoint { return tabletest.Endpoint(fmt.Sprintf("10.244.0.%d", i+1)) }
	const most = 5 * maxIdleBalancers
	for i := range most {
		table.SetEndpoint(svc.Name, endpoint(i))
		tabletest.Sync(t, table)
		if n := len(table.committed.balancers); n > maxIdleBalancers+1 {
			t.Fatalf("%d balancers with %d endpoints, want at most %d", n, i+1, maxIdleBalancers+1)
		}
	}
	for i := range most {
		table.DeleteEndpoint(svc.Name, endpoint(i).EndpointKey)
		tabletest.Sync(t, table)
	}
	checkTable(t, table)
	tabletest.LoadNFT(t, "add table ip other")
	scrubAll(t, table)
	if repairsOf(table) != 0 || len(table.unused) != 0 {
		t.Errorf("%d repairs, unused chains %v", repairsOf(table), table.unused)
	}

	// A stray balancer of an earlier process that could not be deleted is used.
	second := newTable(t, sampleConfig(), nft.IPv4)
	second.SetService(svc)
	second.SetEndpoint(svc.Name, endpoint(0))
	onCommit(second, 2, tabletest.ErrCommit, nil) // the deletion of unused chains after the rewrite
	tabletest.Sync(t, second)
	if len(second.unused) == 0 {
		t.Fatal("no strays")
	}
	for i := range 4 {
		second.SetEndpoint(svc.Name, endpoint(i))
	}
	tabletest.Sync(t, second)
	if len(second.unused) != 0 {
		t.Errorf("garbage %v", second.unused)
	}
	checkTable(t, second)
}
