package table

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
	"github.com/nftproxy/nftproxy/proxier/table/tabletest"
)

// onCommit injects a fault at the n-th commit: it fails if fail is not nil, and
// otherwise calls after. after can be nil.
func onCommit(b *Table, n int, fail error, after func()) *tabletest.Kernel {
	k := injectFaults(b)
	k.OnCommit = func(_ *nft.Batch, commit func() error) error {
		n--
		if n == 0 && fail != nil {
			return fail
		}
		err := commit()
		if n == 0 {
			after()
		}
		return err
	}
	return k
}

// setNamed returns a set of the program.
func setNamed(b *Table, name string) *nft.Set {
	i := slices.IndexFunc(b.committed.program.Sets, func(s *nft.Set) bool { return s.Name == name })
	return b.committed.program.Sets[i]
}

// Another program that changes the rules between a rewrite and its observation
// makes the sync fail and the next one write everything.
func TestChangeBeforeObserving(t *testing.T) {
	tabletest.NewNamespace(t)
	first := newTable(t, sampleConfig(), nft.IPv4)
	tabletest.PassSample(first)
	tabletest.Sync(t, first)
	tabletest.LoadNFT(t, "add chain ip kube-proxy stray") // for prune
	b := newTable(t, sampleConfig(), nft.IPv4)
	tabletest.PassSample(b)
	onCommit(b, 1, nil, func() { tabletest.LoadNFT(t, "flush chain ip kube-proxy services") })
	var d *damage
	if err := b.Sync(); !errors.As(err, &d) || d.kind != damagedRule {
		t.Errorf("got %v, want damaged rules", err)
	}
	tabletest.Sync(t, b)
	checkTable(t, b)
}

// A base chain that another program changes between an update that adds a balancer
// and its observation is not taken for ours.
func TestChangeBeforeObservingAnUpdate(t *testing.T) {
	tabletest.NewNamespace(t)
	b := newTable(t, sampleConfig(), nft.IPv4)
	tabletest.PassSample(b)
	tabletest.Sync(t, b)
	k := onCommit(b, 1, nil, func() {
		tabletest.LoadNFT(t, "add chain ip kube-proxy nat-output { policy drop; }")
	})
	for i := range 9 { // a number of endpoints that is new
		b.SetEndpoint(cluster.ServiceName{Namespace: "default", Name: "web"}, tabletest.Endpoint(fmt.Sprintf("10.244.9.%d", i)))
	}
	var d *damage
	if err := b.Sync(); !errors.As(err, &d) || d.kind != damagedChain {
		t.Errorf("got %v, want a damaged chain", err)
	}
	k.OnCommit = nil
	tabletest.Sync(t, b)
	checkTable(t, b)
}

// A Service that grows and shrinks leaves few idle balancers, and one that is
// needed again is not deleted.
func TestIdleBalancers(t *testing.T) {
	tabletest.NewNamespace(t)
	b := newTable(t, sampleConfig(), nft.IPv4)
	svc := tabletest.Service("svc", "10.96.0.1", nil)
	b.SetService(svc)
	endpoint := func(i int) *cluster.Endpoint { return tabletest.Endpoint(fmt.Sprintf("10.244.0.%d", i+1)) }
	const most = 5 * maxIdleBalancers
	for i := range most {
		b.SetEndpoint(svc.Name, endpoint(i))
		tabletest.Sync(t, b)
		if n := len(b.committed.balancers); n > maxIdleBalancers+1 {
			t.Fatalf("%d balancers with %d endpoints, want at most %d", n, i+1, maxIdleBalancers+1)
		}
	}
	for i := range most {
		b.DeleteEndpoint(svc.Name, endpoint(i).EndpointKey)
		tabletest.Sync(t, b)
	}
	checkTable(t, b)
	tabletest.LoadNFT(t, "add table ip other")
	scrubAll(t, b)
	if repairsOf(b) != 0 || len(b.unused) != 0 {
		t.Errorf("%d repairs, unused chains %v", repairsOf(b), b.unused)
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

// More balancers than are verified at a time are all scrubbed.
func TestManyBalancers(t *testing.T) {
	tabletest.NewNamespace(t)
	b := newTable(t, sampleConfig(), nft.IPv4)
	const balancers = 2 * maxVerifiedBalancers
	for n := 1; n <= balancers; n++ {
		svc := tabletest.Service(fmt.Sprint("svc-", n), fmt.Sprintf("10.96.0.%d", n), nil)
		b.SetService(svc)
		for i := range n {
			b.SetEndpoint(svc.Name, tabletest.Endpoint(fmt.Sprintf("10.244.%d.%d", n, i+1)))
		}
	}
	tabletest.Sync(t, b)
	for n := 1; n <= balancers; n += 20 {
		tabletest.NFT(t, "", "flush", "chain", "ip", ruleset.TableName, fmt.Sprint("balance-", n))
		scrubAll(t, b)
		checkTable(t, b)
	}
}

// The ids of endpoints that are gone are not given again by later processes, which
// find no trace of them in the rules.
func TestIDsAreNotGivenAgain(t *testing.T) {
	tabletest.NewNamespace(t)
	svc := tabletest.Service("sticky", "10.96.0.1", func(s *cluster.Service) { s.AffinityTimeout = time.Hour })
	given := make(map[uint32]string)
	for process := range 4 {
		b := newTable(t, sampleConfig(), nft.IPv4)
		b.SetService(svc)
		b.SetEndpoint(svc.Name, tabletest.Endpoint("10.244.1.1")) // which stays
		for i := range 20 {
			b.SetEndpoint(svc.Name, tabletest.Endpoint(fmt.Sprintf("10.244.%d.%d", 10+process, i)))
		}
		tabletest.Sync(t, b)
		for _, target := range committedPlan(b, svc.Name).Cluster {
			who := target.AddrPort.String()
			if before, was := given[target.ID]; was && before != who {
				t.Errorf("id %d of %s was given to %s", target.ID, before, who)
			}
			given[target.ID] = who
		}
		for i := range 20 {
			b.DeleteEndpoint(svc.Name, tabletest.Endpoint(fmt.Sprintf("10.244.%d.%d", 10+process, i)).EndpointKey)
		}
		tabletest.Sync(t, b)
		checkTableBut(t, b, "reserved-affinity-ids")
	}
	if len(given) != 4*20+1 {
		t.Errorf("%d ids were given, want 81", len(given))
	}
}

// More ids than are reserved at a time are reserved again.
func TestReserveMoreIDs(t *testing.T) {
	tabletest.NewNamespace(t)
	b := newTable(t, sampleConfig(), nft.IPv4)
	svc := tabletest.Service("sticky", "10.96.0.1", func(s *cluster.Service) { s.AffinityTimeout = time.Hour })
	b.SetService(svc)
	for i := range 3 {
		b.SetEndpoint(svc.Name, tabletest.Endpoint(fmt.Sprintf("10.244.0.%d", i)))
		tabletest.Sync(t, b)
		if b.committed.reservedIDs < b.ids.next || b.committed.rows["reserved-affinity-ids"] != 1 {
			t.Errorf("%d is reserved in %d rows, next is %d", b.committed.reservedIDs, b.committed.rows["reserved-affinity-ids"], b.ids.next)
		}
		checkTable(t, b)
		b.ids.next += idBlock
	}
}

// Chains of two service ports that one transaction changed are repaired one by
// one, and so is a row while other programs commit. That is no fight.
func TestPartialRepairs(t *testing.T) {
	tabletest.NewNamespace(t)
	b := newTable(t, sampleConfig(), nft.IPv4)
	for i := range 2 {
		svc := tabletest.Service(fmt.Sprint("s", i), fmt.Sprintf("10.96.1.%d", i), func(s *cluster.Service) { s.AffinityTimeout = time.Hour })
		b.SetService(svc)
		b.SetEndpoint(svc.Name, tabletest.Endpoint("10.244.0.1"))
	}
	tabletest.PassSample(b)
	tabletest.Sync(t, b)
	rewrites := b.stats.Rewrites
	tabletest.LoadNFT(t, "flush chain ip kube-proxy affinity.ns.s0.tcp.http\nflush chain ip kube-proxy affinity.ns.s1.tcp.http")
	scrubAll(t, b)
	checkTable(t, b)
	if n := b.observed.repairs.count[damagedAffinity]; n != 2 || b.stats.Rewrites != rewrites || b.observed.repairs.pause != 0 {
		t.Errorf("%d repairs of chains, %d rewrites, pause %v; want 2, 0, 0", n, b.stats.Rewrites-rewrites, b.observed.repairs.pause)
	}

	b.observed.repairs.last = time.Time{}
	sample := b.rules.Rows(nil, committedPlan(b, cluster.ServiceName{Namespace: "default", Name: "lb"}))[1:2]
	b.committed.samples = map[*nft.Set][]nft.Row{setNamed(b, "service-endpoints"): sample}
	tabletest.LoadNFT(t, `delete element ip kube-proxy service-endpoints { 10.96.0.10 . tcp . 80 . 1 }
		add element ip kube-proxy service-endpoints { 10.96.0.10 . tcp . 80 . 1 : 10.9.9.9 . 1 }`)
	check(t, b)
	k := injectFaults(b)
	k.OnFindRows = func(want, found []nft.Row) {
		for i := range found {
			if found[i].Set != nil && !found[i].Matches(want[i]) { // a repair follows
				tabletest.LoadNFT(t, "add table ip other; delete table ip other")
				return
			}
		}
	}
	scrubAll(t, b)
	k.OnFindRows = nil
	checkTable(t, b)
	if n := b.observed.repairs.count[damagedRow]; n != 1 || b.stats.Rewrites != rewrites {
		t.Errorf("%d repairs of rows, %d rewrites; want 1, 0", n, b.stats.Rewrites-rewrites)
	}
}

// A Reset ends the scrubber's pass, which knows the Services from before.
func TestResetWhileScrubbing(t *testing.T) {
	tabletest.NewNamespace(t)
	b := newTable(t, sampleConfig(), nft.IPv4)
	for i := range 200 {
		svc := tabletest.Service(fmt.Sprint("s", i), fmt.Sprintf("10.96.1.%d", i), nil)
		b.SetService(svc)
		b.SetEndpoint(svc.Name, tabletest.Endpoint("10.244.0.1"))
	}
	tabletest.Sync(t, b)
	tabletest.LoadNFT(t, "add table ip other")
	check(t, b)
	if len(b.observed.scrubber.queue) == 0 {
		t.Fatal("no pass began")
	}
	b.Reset()
	tabletest.PassSample(b)
	tabletest.Sync(t, b)
	scrubAll(t, b)
	checkTable(t, b)
	if n := repairsOf(b); n != 0 {
		t.Errorf("%d repairs, want none", n)
	}
}

// Rows about this node are samples too.
func TestSamplesOfNodeRows(t *testing.T) {
	tabletest.NewNamespace(t)
	b := newTable(t, randomConfig(nft.IPv4, false), nft.IPv4)
	tabletest.PassSample(b)
	node := tabletest.Node()
	for i := range 2 * maxSamples {
		node.NodePortIPs = append(node.NodePortIPs, addr(fmt.Sprintf("10.0.0.%d", i+1)))
	}
	b.SetNode(node)
	tabletest.Sync(t, b)
	without := *node
	without.NodePortIPs = node.NodePortIPs[maxSamples:]
	b.SetNode(&without)
	tabletest.Sync(t, b)
	set := setNamed(b, "nodeport-ips")
	delete(b.committed.samples, set)
	if rows := b.samplesOf(set); len(rows) != 1 {
		t.Errorf("samples %v, want one", rows)
	}
}
