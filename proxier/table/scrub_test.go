package table

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
	"github.com/nftproxy/nftproxy/proxier/table/keep"
	"github.com/nftproxy/nftproxy/proxier/table/tabletest"
)

// scrubAll calls Check until the scrubber has completed a pass.
func scrubAll(t testing.TB, table *Table) {
	t.Helper()
	usual := *table.config.Limits
	defer func() { *table.config.Limits = usual }()
	*table.config.Limits = *atOnce()
	for range 1_000_000 {
		mustCheck(t, table)
		if table.keeper.Scrubbed() {
			return
		}
	}
	t.Fatal("the scrubber does not complete a pass")
}

// Time in which other processes use the processor does not slow the scrubber
// down.
func TestScrubOnBusyNode(t *testing.T) {
	tabletest.NewNamespace(t)
	table := newSample(t)
	tabletest.Sync(t, table)
	var busy time.Duration
	injectFaults(table).OnFindRows = func(_, _ []nft.Row) {
		const pause = 200 * time.Millisecond // reading takes some 30 ms on emulated processors
		time.Sleep(pause)
		busy += pause
	}
	tabletest.NFT(t, "", "add", "table", "ip", "other")
	mustCheck(t, table)
	if busy == 0 {
		t.Fatal("the scrubber has not read rows")
	}
	for first, start := busy, time.Now(); busy == first; time.Sleep(10 * time.Millisecond) {
		if time.Since(start) > busy*table.config.Limits.CheckShare/2 {
			t.Fatalf("got a long rest after %v without the processor", busy)
		}
		mustCheck(t, table)
	}
}

// If many rows are wrong, everything is written.
func TestScrubManyRows(t *testing.T) {
	tabletest.NewNamespace(t)
	table := newTable(t, sampleConfig(), nft.IPv4)
	tabletest.PassSample(table)
	svc := tabletest.Service("large", "10.96.0.99", nil)
	table.SetService(svc)
	const endpoints = 2 * 64
	for i := range endpoints {
		tabletest.SetEndpoint(table, svc.Name, tabletest.Endpoint(fmt.Sprintf("10.244.%d.%d", 10+i/100, i%100)))
	}
	tabletest.Sync(t, table)
	var commands strings.Builder
	for i := range endpoints {
		key := fmt.Sprintf("10.96.0.99 . tcp . 80 . 0:%x", i+1)
		fmt.Fprintf(&commands, "delete element ip kube-proxy service-targets { %s }\n", key)
		fmt.Fprintf(&commands, "add element ip kube-proxy service-targets { %s : 10.9.9.9 . 1 }\n", key)
	}
	tabletest.LoadNFT(t, commands.String())
	rewrites := table.Stats().Rewrites
	scrubAll(t, table)
	checkTable(t, table)
	if got := table.Stats().Rewrites - rewrites; got != 1 {
		t.Errorf("got %d rewrites, want 1", got)
	}
}

// The scrubber compares all balancers if there are more than are verified at
// a time.
func TestScrubManyBalancers(t *testing.T) {
	tabletest.NewNamespace(t)
	table := newTable(t, sampleConfig(), nft.IPv4)
	const balancers = 2 * 32
	for n := 1; n <= balancers; n++ {
		svc := tabletest.Service(fmt.Sprint("svc-", n), fmt.Sprintf("10.96.0.%d", n), nil)
		table.SetService(svc)
		for i := range n {
			tabletest.SetEndpoint(table, svc.Name, tabletest.Endpoint(fmt.Sprintf("10.244.%d.%d", n, i+1)))
		}
	}
	tabletest.Sync(t, table)
	for n := 1; n <= balancers; n += 20 {
		tabletest.NFT(t, "", "flush", "chain", "ip", ruleset.TableName, fmt.Sprint("balance-", n))
		scrubAll(t, table)
		checkTable(t, table)
	}
}

// If one transaction changed the affinity chains of two service ports, each
// is repaired separately, and the next repair does not have to wait.
func TestScrubAffinityChains(t *testing.T) {
	tabletest.NewNamespace(t)
	table := newTable(t, sampleConfig(), nft.IPv4)
	for i := range 2 {
		svc := tabletest.Service(fmt.Sprint("s", i), fmt.Sprintf("10.96.1.%d", i), func(s *cluster.Service) {
			s.AffinityTimeout = time.Hour
		})
		table.SetService(svc)
		tabletest.SetEndpoint(table, svc.Name, tabletest.Endpoint("10.244.0.1"))
	}
	tabletest.Sync(t, table)
	rewrites := table.Stats().Rewrites
	tabletest.LoadNFT(t, `flush chain ip kube-proxy affinity.ns.s0.tcp.http
		flush chain ip kube-proxy affinity.ns.s1.tcp.http`)
	scrubAll(t, table)
	checkTable(t, table)
	if n := table.Stats().Repairs[keep.DamagedAffinity]; n != 2 || table.Stats().Rewrites != rewrites {
		t.Errorf("got %d repairs, %d rewrites; want 2, 0", n, table.Stats().Rewrites-rewrites)
	}
}

// If other programs commit between the detection of a wrong row, the
// verification of the table and the repair, the row is still repaired without
// a rewrite.
func TestScrubRowDuringForeignCommits(t *testing.T) {
	tabletest.NewNamespace(t)
	table := newSample(t)
	rewrites := table.Stats().Rewrites
	tabletest.LoadNFT(t, `delete element ip kube-proxy service-targets { 10.96.0.10 . tcp . 80 . 0:2 }
		add element ip kube-proxy service-targets { 10.96.0.10 . tcp . 80 . 0:2 : 10.9.9.9 . 1 }`)
	k := injectFaults(table)
	foreignCommit := func() { tabletest.LoadNFT(t, "add table ip other; delete table ip other") }
	k.OnFindRows = func(want, found []nft.Row) {
		for i := range found {
			if found[i].Set != nil && !found[i].Matches(want[i]) {
				foreignCommit()
				return
			}
		}
	}
	commits := 0
	k.OnCommit = func(_ *nft.Batch, commit func() error) error {
		if commits++; commits == 1 {
			foreignCommit()
		}
		return commit()
	}
	scrubAll(t, table)
	k.OnFindRows = nil
	checkTable(t, table)
	if n := table.Stats().Repairs[keep.DamagedRow]; n != 1 || table.Stats().Rewrites != rewrites {
		t.Errorf("got %d repairs and %d rewrites, want 1 and 0", n, table.Stats().Rewrites-rewrites)
	}
}

// The queue of a scrubber's pass can contain service ports that a rewrite
// removed.
func TestRewriteDuringScrub(t *testing.T) {
	tabletest.NewNamespace(t)
	table := newTable(t, sampleConfig(), nft.IPv4)
	for i := range 200 {
		svc := tabletest.Service(fmt.Sprint("s", i), fmt.Sprintf("10.96.1.%d", i), nil)
		table.SetService(svc)
		tabletest.SetEndpoint(table, svc.Name, tabletest.Endpoint("10.244.0.1"))
	}
	tabletest.Sync(t, table)
	tabletest.LoadNFT(t, "add table ip other")
	mustCheck(t, table)
	if table.keeper.Scrubbed() {
		t.Fatal("got an empty queue, want the rest of a pass")
	}
	for i := range 200 {
		table.DeleteService(cluster.ServiceName{Namespace: "ns", Name: fmt.Sprint("s", i)})
	}
	tabletest.PassSample(table)
	table.keeper.Distrust(keep.RewriteDamage, "test")
	tabletest.Sync(t, table)
	scrubAll(t, table)
	checkTable(t, table)
	if n := repairsOf(table); n != 0 {
		t.Errorf("got %d repairs, want 0", n)
	}
}
