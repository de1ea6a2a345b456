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
		uses   map[string]int
		want   []object
	}{
		{name: "a chain is no longer used", change: change{before: plan}, want: []object{chain}},
		{name: "a rewrite replaces all chains", whole: true, change: change{before: plan}},
		{name: "a chain and a set are used again", before: []object{chain, set}, change: change{next: plan}},
		{name: "a chain stays in use", change: change{before: plan, next: plan}},
		{name: "more rows use a balancer", before: []object{balancer}, uses: map[string]int{"balance-2": 1}},
		{name: "fewer rows use a balancer", before: []object{balancer}, uses: map[string]int{"balance-2": -1},
			want: []object{balancer}},
	} {
		u := make(unused)
		u.add(tt.before...)
		tx := table.begin(table.committed)
		tx.whole, tx.changes = tt.whole, []change{tt.change}
		if tt.uses != nil {
			tx.uses = tt.uses
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

// A balancer to which a rule of another program refers is not deleted. All
// others are, and no sync fails or tries again.
func TestBalancerInUse(t *testing.T) {
	tabletest.NewNamespace(t)
	table := newSample(t)
	svc := tabletest.Service("svc", "10.96.0.1", nil)
	table.SetService(svc)
	scaleTo := func(n int) {
		var endpoints []*cluster.Endpoint
		for i := range n {
			endpoints = append(endpoints, tabletest.Endpoint(fmt.Sprintf("10.244.9.%d", i+1)))
		}
		table.SetEndpoints(svc.Name, "s", endpoints)
		tabletest.Sync(t, table)
	}
	const most = maxIdleBalancers + 10
	scaleTo(most)
	tabletest.LoadNFT(t, fmt.Sprintf("add chain ip kube-proxy other\nadd rule ip kube-proxy other goto balance-%d",
		most))
	for n := range most {
		scaleTo(n)
	}
	balancer := fmt.Sprintf("balance-%d", most)
	if n := table.stats.CleanupFailures; n != 1 || len(table.committed.balancers) > maxIdleBalancers+5 {
		t.Errorf("got %d failures and balancers %v, want 1 failure", n, table.committed.balancers)
	}
	if _, ok := table.committed.balancers[balancer]; !ok || table.stats.Rewrites != 1 || len(table.refusals) != 0 {
		t.Errorf("got balancers %v, %d rewrites, refusals %v", table.committed.balancers, table.stats.Rewrites,
			refusedNames(table))
	}
	scaleTo(most)
	table.doubt(rewriteFailure, "test") // a rewrite deletes the rule
	scaleTo(1)
	checkTable(t, table)
}

// A Service that grows and shrinks leaves few idle balancers, and a balancer
// that is used again is not deleted.
func TestIdleBalancers(t *testing.T) {
	tabletest.NewNamespace(t)
	table := newTable(t, sampleConfig(), nft.IPv4)
	svc := tabletest.Service("svc", "10.96.0.1", nil)
	table.SetService(svc)
	endpoint := func(i int) *cluster.Endpoint { return tabletest.Endpoint(fmt.Sprintf("10.244.0.%d", i+1)) }
	const most = 5 * maxIdleBalancers
	for i := range most {
		tabletest.SetEndpoint(table, svc.Name, endpoint(i))
		tabletest.Sync(t, table)
		if n := len(table.committed.balancers); n > maxIdleBalancers+1 {
			t.Fatalf("%d endpoints: got %d balancers, want at most %d", i+1, n, maxIdleBalancers+1)
		}
	}
	for i := range most {
		tabletest.DeleteEndpoint(table, svc.Name, endpoint(i).EndpointKey)
		tabletest.Sync(t, table)
	}
	checkTable(t, table)
	tabletest.LoadNFT(t, "add table ip other")
	scrubAll(t, table)
	if repairsOf(table) != 0 || len(table.unused) != 0 {
		t.Errorf("got %d repairs and unused objects %v, want none", repairsOf(table), table.unused)
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
