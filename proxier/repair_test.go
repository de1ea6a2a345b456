package proxier

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/nft"
)

// disturbed calls a function after the n-th commit, which happens, or fails it.
type disturbed struct {
	kernel
	n     int
	after func()
	fail  error
}

func (k *disturbed) Commit(b *nft.Batch) error {
	k.n--
	if k.n == 0 && k.fail != nil {
		return k.fail
	}
	err := k.kernel.Commit(b)
	if k.n == 0 {
		k.after()
	}
	return err
}

// Another program that changes the rules between a rewrite and its observation
// makes the sync fail and the next one write everything.
func TestChangeBeforeObserving(t *testing.T) {
	newNamespace(t)
	first := newBackend(t, sampleConfig(), nft.IPv4)
	tellSample(first)
	mustSync(t, first)
	runNFT(t, "add chain ip kube-proxy stray", "-f", "-") // for prune
	b := newBackend(t, sampleConfig(), nft.IPv4)
	tellSample(b)
	b.kernel = &disturbed{kernel: b.kernel, n: 1, after: func() { runNFT(t, "flush chain ip kube-proxy services", "-f", "-") }}
	var d *damage
	if err := b.Sync(); !errors.As(err, &d) || d.kind != damagedRule {
		t.Errorf("got %v, want damaged rules", err)
	}
	mustSync(t, b)
	checkTable(t, b)
}

// A base chain that another program changes between an update that adds a balancer
// and its observation is not taken for ours.
func TestChangeBeforeObservingAnUpdate(t *testing.T) {
	newNamespace(t)
	b := newBackend(t, sampleConfig(), nft.IPv4)
	tellSample(b)
	mustSync(t, b)
	sound := b.kernel
	b.kernel = &disturbed{kernel: sound, n: 1, after: func() {
		runNFT(t, "add chain ip kube-proxy nat-output { policy drop; }", "-f", "-")
	}}
	for i := range 9 { // a number of endpoints that is new
		b.SetEndpoint(ServiceName{"default", "web"}, simpleEndpoint(fmt.Sprintf("10.244.9.%d", i)))
	}
	var d *damage
	if err := b.Sync(); !errors.As(err, &d) || d.kind != damagedChain {
		t.Errorf("got %v, want a damaged chain", err)
	}
	b.kernel = sound
	mustSync(t, b)
	checkTable(t, b)
}

// A Service that grows and shrinks leaves few idle balancers, and one that is
// needed again is not deleted.
func TestIdleBalancers(t *testing.T) {
	newNamespace(t)
	b := newBackend(t, sampleConfig(), nft.IPv4)
	svc := simpleService("svc", "10.96.0.1", nil)
	b.SetService(svc)
	endpoint := func(i int) *Endpoint { return simpleEndpoint(fmt.Sprintf("10.244.0.%d", i+1)) }
	const most = 5 * maxIdleBalancers
	for i := range most {
		b.SetEndpoint(svc.Name, endpoint(i))
		mustSync(t, b)
		if n := len(b.have.balancers); n > maxIdleBalancers+1 {
			t.Fatalf("%d balancers with %d endpoints, want at most %d", n, i+1, maxIdleBalancers+1)
		}
	}
	for i := range most {
		b.DeleteEndpoint(svc.Name, endpoint(i).EndpointKey)
		mustSync(t, b)
	}
	checkTable(t, b)
	runNFT(t, "add table ip other", "-f", "-")
	scrubAll(t, b)
	if b.Stats().Repairs != 0 || len(b.garbage) != 0 {
		t.Errorf("%d repairs, garbage %v", b.Stats().Repairs, b.garbage)
	}

	// A stray balancer of an earlier process that could not be deleted is used.
	second := newBackend(t, sampleConfig(), nft.IPv4)
	second.SetService(svc)
	second.SetEndpoint(svc.Name, endpoint(0))
	second.kernel = &disturbed{kernel: second.kernel, n: 2, fail: errFailing} // prune after the rewrite
	mustSync(t, second)
	if len(second.garbage) == 0 {
		t.Fatal("no strays")
	}
	for i := range 4 {
		second.SetEndpoint(svc.Name, endpoint(i))
	}
	mustSync(t, second)
	if len(second.garbage) != 0 {
		t.Errorf("garbage %v", second.garbage)
	}
	checkTable(t, second)
}

// More balancers than are verified at a time are all scrubbed.
func TestManyBalancers(t *testing.T) {
	newNamespace(t)
	b := newBackend(t, sampleConfig(), nft.IPv4)
	const balancers = 2 * maxVerifiedBalancers
	for n := 1; n <= balancers; n++ {
		svc := simpleService(fmt.Sprint("svc-", n), fmt.Sprintf("10.96.0.%d", n), nil)
		b.SetService(svc)
		for i := range n {
			b.SetEndpoint(svc.Name, simpleEndpoint(fmt.Sprintf("10.244.%d.%d", n, i+1)))
		}
	}
	mustSync(t, b)
	for n := 1; n <= balancers; n += 20 {
		runNFT(t, "", "flush", "chain", "ip", TableName, fmt.Sprint("balance-", n))
		scrubAll(t, b)
		checkTable(t, b)
	}
}

// The ids of endpoints that are gone are not given again by later processes, which
// find no trace of them in the rules.
func TestIDsAreNotGivenAgain(t *testing.T) {
	newNamespace(t)
	svc := simpleService("sticky", "10.96.0.1", func(s *Service) { s.AffinityTimeout = time.Hour })
	given := make(map[uint32]string)
	for process := range 4 {
		b := newBackend(t, sampleConfig(), nft.IPv4)
		b.SetService(svc)
		b.SetEndpoint(svc.Name, simpleEndpoint("10.244.1.1")) // which stays
		for i := range 20 {
			b.SetEndpoint(svc.Name, simpleEndpoint(fmt.Sprintf("10.244.%d.%d", 10+process, i)))
		}
		mustSync(t, b)
		for _, target := range b.services[svc.Name].ports[0].committed.cluster {
			who := target.AddrPort.String()
			if before, was := given[target.id]; was && before != who {
				t.Errorf("id %d of %s was given to %s", target.id, before, who)
			}
			given[target.id] = who
		}
		for i := range 20 {
			b.DeleteEndpoint(svc.Name, simpleEndpoint(fmt.Sprintf("10.244.%d.%d", 10+process, i)).EndpointKey)
		}
		mustSync(t, b)
		checkTableBut(t, b, "reserved-affinity-ids")
	}
	if len(given) != 4*20+1 {
		t.Errorf("%d ids were given, want 81", len(given))
	}
}

// More ids than are reserved at a time are reserved again.
func TestReserveMoreIDs(t *testing.T) {
	newNamespace(t)
	b := newBackend(t, sampleConfig(), nft.IPv4)
	svc := simpleService("sticky", "10.96.0.1", func(s *Service) { s.AffinityTimeout = time.Hour })
	b.SetService(svc)
	for i := range 3 {
		b.SetEndpoint(svc.Name, simpleEndpoint(fmt.Sprintf("10.244.0.%d", i)))
		mustSync(t, b)
		if b.have.reservedIDs < b.ids.next || b.have.rows["reserved-affinity-ids"] != 1 {
			t.Errorf("%d is reserved in %d rows, next is %d", b.have.reservedIDs, b.have.rows["reserved-affinity-ids"], b.ids.next)
		}
		checkTable(t, b)
		b.ids.next += idBlock
	}
}

// Chains of two service ports that one transaction changed are repaired one by
// one, and so is a row while other programs commit. That is no fight.
func TestPartialRepairs(t *testing.T) {
	newNamespace(t)
	b := newBackend(t, sampleConfig(), nft.IPv4)
	for i := range 2 {
		svc := simpleService(fmt.Sprint("s", i), fmt.Sprintf("10.96.1.%d", i), func(s *Service) { s.AffinityTimeout = time.Hour })
		b.SetService(svc)
		b.SetEndpoint(svc.Name, simpleEndpoint("10.244.0.1"))
	}
	tellSample(b)
	mustSync(t, b)
	rewrites := b.stats.Rewrites
	runNFT(t, "flush chain ip kube-proxy affinity.ns.s0.tcp.http\nflush chain ip kube-proxy affinity.ns.s1.tcp.http", "-f", "-")
	scrubAll(t, b)
	checkTable(t, b)
	if n := b.repairs.count[damagedAffinity]; n != 2 || b.stats.Rewrites != rewrites || b.repairs.pause != 0 {
		t.Errorf("%d repairs of chains, %d rewrites, pause %v; want 2, 0, 0", n, b.stats.Rewrites-rewrites, b.repairs.pause)
	}

	b.repairs.last = time.Time{}
	b.have.samples = map[*nft.Set][]nft.Row{b.layout.serviceEndpoints: b.render.rows(nil, b.services[ServiceName{"default", "lb"}].ports[0].committed)[1:2]}
	runNFT(t, `delete element ip kube-proxy service-endpoints { 10.96.0.10 . tcp . 80 . 1 }
		add element ip kube-proxy service-endpoints { 10.96.0.10 . tcp . 80 . 1 : 10.9.9.9 . 1 }`, "-f", "-")
	check(t, b)
	sound := b.kernel
	b.kernel = &foreignBefore{sound, t}
	scrubAll(t, b)
	b.kernel = sound
	checkTable(t, b)
	if n := b.repairs.count[damagedRow]; n != 1 || b.stats.Rewrites != rewrites {
		t.Errorf("%d repairs of rows, %d rewrites; want 1, 0", n, b.stats.Rewrites-rewrites)
	}
}

// foreignBefore commits something else before each repair of a row.
type foreignBefore struct {
	kernel
	t testing.TB
}

func (k *foreignBefore) FindRows(table *nft.Table, rows []nft.Row) ([]nft.Row, error) {
	found, err := k.kernel.FindRows(table, rows)
	for i := range found {
		if found[i].Set != nil && !found[i].Matches(rows[i]) { // a repair follows
			runNFT(k.t, "add table ip other; delete table ip other", "-f", "-")
			break
		}
	}
	return found, err
}

// A Reset ends the scrubber's pass, which knows the Services from before.
func TestResetWhileScrubbing(t *testing.T) {
	newNamespace(t)
	b := newBackend(t, sampleConfig(), nft.IPv4)
	for i := range 200 {
		svc := simpleService(fmt.Sprint("s", i), fmt.Sprintf("10.96.1.%d", i), nil)
		b.SetService(svc)
		b.SetEndpoint(svc.Name, simpleEndpoint("10.244.0.1"))
	}
	mustSync(t, b)
	runNFT(t, "add table ip other", "-f", "-")
	check(t, b)
	if len(b.scrubber.queue) == 0 {
		t.Fatal("no pass began")
	}
	b.Reset()
	tellSample(b)
	mustSync(t, b)
	scrubAll(t, b)
	checkTable(t, b)
	if n := b.Stats().Repairs; n != 0 {
		t.Errorf("%d repairs, want none", n)
	}
}

// Rows about this node are samples too.
func TestSamplesOfNodeRows(t *testing.T) {
	newNamespace(t)
	b := newBackend(t, randomConfig(nft.IPv4, false), nft.IPv4)
	tellSample(b)
	node := sampleNode()
	for i := range 2 * maxSamples {
		node.NodePortIPs = append(node.NodePortIPs, addr(fmt.Sprintf("10.0.0.%d", i+1)))
	}
	b.SetNode(node)
	mustSync(t, b)
	without := *node
	without.NodePortIPs = node.NodePortIPs[maxSamples:]
	b.SetNode(&without)
	mustSync(t, b)
	delete(b.have.samples, b.layout.nodePortIPs)
	if rows := b.samplesOf(b.layout.nodePortIPs); len(rows) != 1 {
		t.Errorf("samples %v, want one", rows)
	}
}

// While syncs wait for minSyncPeriod, the tables are still checked.
func TestChecksWhileSyncsWait(t *testing.T) {
	newNamespace(t)
	config := sampleConfig()
	config.MinSyncPeriod = 20 * time.Second
	p, err := newProxier(*config, nft.IPv4)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	tellSample(p.sink)
	p.OnServiceSynced()
	p.OnEndpointSlicesSynced()
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		p.SyncLoop(ctx)
	}()
	defer func() { stop(); <-done }()
	<-p.Synced()
	p.Sync() // has to wait
	time.Sleep(2 * checkPeriod)
	conn, err := nft.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	runNFT(t, "", "delete", "table", "ip", TableName)
	for range 200 {
		if _, ok, err := conn.FindChain(&nft.Table{Family: nft.IPv4, Name: TableName}, "nat-output"); ok && err == nil {
			return
		}
		p.Sync()
		time.Sleep(checkPeriod)
	}
	t.Error("the table was not restored within half of minSyncPeriod")
}

// A repair that fails is tried again by the loop.
func TestFailedRepairIsTriedAgain(t *testing.T) {
	newNamespace(t)
	p, err := newProxier(*sampleConfig(), nft.IPv4)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	tellSample(p.sink)
	p.OnServiceSynced()
	p.OnEndpointSlicesSynced()
	mustSync(t, p.sink)
	b := p.backends[0]
	b.kernel = &disturbed{kernel: b.kernel, n: 1, fail: errFailing}
	runNFT(t, "", "delete", "table", "ip", TableName)
	<-p.wake // so that only the failed check asks for a sync
	ctx, stop := context.WithTimeout(t.Context(), 5*time.Second)
	defer stop()
	done := make(chan struct{})
	go func() {
		defer close(done)
		p.SyncLoop(ctx)
	}()
	for ctx.Err() == nil {
		if out := runNFT(t, "", "list", "tables"); strings.Contains(out, TableName) {
			stop()
		}
		time.Sleep(checkPeriod)
	}
	<-done
	checkTable(t, b)
}
