package table

import (
	"fmt"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
	"github.com/nftproxy/nftproxy/proxier/table/tabletest"
)

func TestUpdateOfUnused(t *testing.T) {
	table := newUnconnected(t, sampleConfig(), nft.IPv4)
	plan := affinityPlan("10.244.0.1:80")
	plan.Frontends = []ruleset.ServedFrontend{{Frontend: ruleset.Frontend{Addr: addr("10.96.0.1"), Port: 80}}}
	chain := object{kindChain, "affinity.default.web.tcp"}
	set := object{kindSet, table.rules.AffinitySet(plan).Name}
	balancer := object{kindChain, "balance-2"}
	for _, tt := range []struct {
		name   string
		before []object
		whole  bool
		change change
		want   []object

		balancer bool // the transaction writes it
	}{
		{name: "a chain is no longer used", change: change{before: plan}, want: []object{chain}},
		{name: "a rewrite replaces all chains", whole: true, change: change{before: plan}},
		{name: "a chain and a set are used again", before: []object{chain, set}, change: change{next: plan}},
		{name: "a chain stays in use", change: change{before: plan, next: plan}},
		{name: "a balancer is used again", before: []object{balancer}, balancer: true},
	} {
		u := make(unused)
		u.add(tt.before...)
		tx := table.begin(table.committed)
		tx.whole, tx.changes = tt.whole, []change{tt.change}
		if tt.balancer {
			tx.balancers[ruleset.Balancers(2)[0]] = true
		}
		u.update(tx)
		if got := u.sorted(); !slices.Equal(got, tt.want) {
			t.Errorf("%s: got %v, want %v", tt.name, got, tt.want)
		}
	}
}

// Chains are deleted before the sets that they refer to. Objects that do not
// exist are not tried again.
func TestOrderOfUnused(t *testing.T) {
	u := make(unused)
	u.add(object{kindSet, "a"}, object{kindChain, "c"}, object{kindChain, "b"})
	want := []object{{kindChain, "b"}, {kindChain, "c"}, {kindSet, "a"}}
	if got := u.sorted(); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	u.exclude(&nft.CommitError{Problems: []nft.Problem{
		{Object: "a", Errno: unix.ENOENT}, {Object: "b", Errno: unix.EBUSY},
	}})
	if got := u.sorted(); !slices.Equal(got, want[1:2]) {
		t.Errorf("without a missing set and a chain in use: got %v, want %v", got, want[1:2])
	}
	u.retry()
	if got := u.sorted(); !slices.Equal(got, want[:2]) {
		t.Errorf("without a missing set: got %v, want %v", got, want[:2])
	}
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
	if len(second.unused) == 0 {
		t.Fatal("got no unused objects, want some")
	}
	set(second, 4)
	tabletest.Sync(t, second)
	if len(second.unused) != 0 {
		t.Errorf("got unused objects %v, want none", second.unused)
	}
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
	for size := range maxUnused + 100 {
		resized := *svc
		resized.HashTableSize = 16 + size
		table.SetService(&resized)
		tabletest.Sync(t, table)
		most = max(most, len(table.committed.balancers))
	}
	if n := table.stats.RewriteCauses[rewriteUnused]; n != 1 || most > maxUnused+50 {
		t.Errorf("got %d rewrites and up to %d balancers, want 1 and at most %d", n, most, maxUnused+50)
	}
	checkTable(t, table)
}
