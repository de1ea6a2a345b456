package table

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
	"github.com/nftproxy/nftproxy/proxier/table/tabletest"
)

// scrubAll calls Check until all rows are scrubbed.
func scrubAll(t testing.TB, table *Table) {
	t.Helper()
	for range 1_000_000 {
		table.observed.scrubber.rest, table.observed.repairs.pause = time.Time{}, 0
		check(t, table)
		if table.observed.scrubber.queue == nil && table.observed.scrubber.done == table.observed.generation.foreign {
			return
		}
	}
	t.Fatal("the scrubber does not end")
}

// Many single rows that are wrong are repaired by writing everything.
func TestScrubManyRows(t *testing.T) {
	tabletest.NewNamespace(t)
	table := newTable(t, sampleConfig(), nft.IPv4)
	tabletest.PassSample(table)
	svc := tabletest.Service("large", "10.96.0.99", nil)
	table.SetService(svc)
	const endpoints = 2 * scrubRows
	for i := range endpoints {
		table.SetEndpoint(svc.Name, tabletest.Endpoint(fmt.Sprintf("10.244.%d.%d", 10+i/100, i%100)))
	}
	tabletest.Sync(t, table)
	var commands strings.Builder
	for i := range endpoints {
		key := fmt.Sprintf("10.96.0.99 . tcp . 80 . %d", i)
		fmt.Fprintf(&commands, "delete element ip kube-proxy service-endpoints { %s }\n", key)
		fmt.Fprintf(&commands, "add element ip kube-proxy service-endpoints { %s : 10.9.9.9 . 1 }\n", key)
	}
	tabletest.LoadNFT(t, commands.String())
	now, err := table.kernel.Generation()
	if err != nil {
		t.Fatal(err)
	}
	table.observed.generation.found(now)
	table.observed.verified = table.observed.generation.foreign // as if no sample was among them
	rewrites := table.stats.Rewrites
	scrubAll(t, table)
	checkTable(t, table)
	if n := table.stats.Rewrites - rewrites; n != 1 {
		t.Errorf("%d rewrites, want 1", n)
	}
}

// More balancers than are verified at a time are all scrubbed.
func TestManyBalancers(t *testing.T) {
	tabletest.NewNamespace(t)
	table := newTable(t, sampleConfig(), nft.IPv4)
	const balancers = 2 * maxVerifiedBalancers
	for n := 1; n <= balancers; n++ {
		svc := tabletest.Service(fmt.Sprint("svc-", n), fmt.Sprintf("10.96.0.%d", n), nil)
		table.SetService(svc)
		for i := range n {
			table.SetEndpoint(svc.Name, tabletest.Endpoint(fmt.Sprintf("10.244.%d.%d", n, i+1)))
		}
	}
	tabletest.Sync(t, table)
	for n := 1; n <= balancers; n += 20 {
		tabletest.NFT(t, "", "flush", "chain", "ip", ruleset.TableName, fmt.Sprint("balance-", n))
		scrubAll(t, table)
		checkTable(t, table)
	}
}

// Chains of two service ports that one transaction changed are repaired one by
// one, and so is a row while other programs commit. That is no fight.
func TestPartialRepairs(t *testing.T) {
	tabletest.NewNamespace(t)
	table := newTable(t, sampleConfig(), nft.IPv4)
	for i := range 2 {
		svc := tabletest.Service(fmt.Sprint("s", i), fmt.Sprintf("10.96.1.%d", i), func(s *cluster.Service) { s.AffinityTimeout = time.Hour })
		table.SetService(svc)
		table.SetEndpoint(svc.Name, tabletest.Endpoint("10.244.0.1"))
	}
	tabletest.PassSample(table)
	tabletest.Sync(t, table)
	rewrites := table.stats.Rewrites
	tabletest.LoadNFT(t, "flush chain ip kube-proxy affinity.ns.s0.tcp.http\nflush chain ip kube-proxy affinity.ns.s1.tcp.http")
	scrubAll(t, table)
	checkTable(t, table)
	if n := table.observed.repairs.count[damagedAffinity]; n != 2 || table.stats.Rewrites != rewrites || table.observed.repairs.pause != 0 {
		t.Errorf("%d repairs of chains, %d rewrites, pause %v; want 2, 0, 0", n, table.stats.Rewrites-rewrites, table.observed.repairs.pause)
	}

	table.observed.repairs.last = time.Time{}
	sample := table.rules.Rows(nil, committedPlan(table, cluster.ServiceName{Namespace: "default", Name: "lb"}))[1:2]
	table.committed.samples = map[*nft.Set][]nft.Row{setNamed(table, "service-endpoints"): sample}
	tabletest.LoadNFT(t, `delete element ip kube-proxy service-endpoints { 10.96.0.10 . tcp . 80 . 1 }
		add element ip kube-proxy service-endpoints { 10.96.0.10 . tcp . 80 . 1 : 10.9.9.9 . 1 }`)
	check(t, table)
	k := injectFaults(table)
	k.OnFindRows = func(want, found []nft.Row) {
		for i := range found {
			if found[i].Set != nil && !found[i].Matches(want[i]) { // a repair follows
				tabletest.LoadNFT(t, "add table ip other; delete table ip other")
				return
			}
		}
	}
	scrubAll(t, table)
	k.OnFindRows = nil
	checkTable(t, table)
	if n := table.observed.repairs.count[damagedRow]; n != 1 || table.stats.Rewrites != rewrites {
		t.Errorf("%d repairs of rows, %d rewrites; want 1, 0", n, table.stats.Rewrites-rewrites)
	}
}

// A Reset ends the scrubber's pass, which knows the Services from before.
func TestResetWhileScrubbing(t *testing.T) {
	tabletest.NewNamespace(t)
	table := newTable(t, sampleConfig(), nft.IPv4)
	for i := range 200 {
		svc := tabletest.Service(fmt.Sprint("s", i), fmt.Sprintf("10.96.1.%d", i), nil)
		table.SetService(svc)
		table.SetEndpoint(svc.Name, tabletest.Endpoint("10.244.0.1"))
	}
	tabletest.Sync(t, table)
	tabletest.LoadNFT(t, "add table ip other")
	check(t, table)
	if len(table.observed.scrubber.queue) == 0 {
		t.Fatal("no pass began")
	}
	table.Reset()
	tabletest.PassSample(table)
	tabletest.Sync(t, table)
	scrubAll(t, table)
	checkTable(t, table)
	if n := repairsOf(table); n != 0 {
		t.Errorf("%d repairs, want none", n)
	}
}
