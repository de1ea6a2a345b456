package proxier

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
	"github.com/nftproxy/nftproxy/proxier/table"
	"github.com/nftproxy/nftproxy/proxier/table/keep"
	"github.com/nftproxy/nftproxy/test/lab/nstest"
	"github.com/nftproxy/nftproxy/test/must"
	"github.com/nftproxy/nftproxy/test/tabletest"
)

// sampleConfig returns the configuration for the sample Services.
func sampleConfig() Config {
	rules := tabletest.Rules()
	rules.AffinitySeed = 0
	return Config{NodeName: "node1", Rules: rules}
}

// newTestProxier returns a Proxier in the network namespace of the test.
func newTestProxier(t testing.TB, config Config, families ...nft.Family) *Proxier {
	t.Helper()
	p, err := newProxier(config, families...)
	must.NoError(t, err)
	t.Cleanup(func() { p.Close() })
	return p
}

// startLoop runs the loop of a Proxier until the test ends.
func startLoop(t testing.TB, p *Proxier) {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		p.SyncLoop(ctx)
	}()
	t.Cleanup(func() { stop(); <-done })
}

// openWith returns a Config.open whose Kernel has this OnCommit.
func openWith(onCommit func(b *nft.Batch, commit func() error) error) func() (keep.Kernel, error) {
	return func() (keep.Kernel, error) {
		conn, err := nft.Open()
		return &tabletest.Kernel{Conn: conn, OnCommit: onCommit}, err
	}
}

// The rest after a sync is proportional to its duration, up to a limit.
func TestRestAfter(t *testing.T) {
	for sync, want := range map[time.Duration]time.Duration{
		0:                     0,
		time.Millisecond:      3 * time.Millisecond,
		30 * time.Millisecond: 20 * time.Millisecond,
		time.Minute:           20 * time.Millisecond,
	} {
		if got := restAfter(sync); got != want {
			t.Errorf("sync of %s: got a rest of %s, want %s", sync, got, want)
		}
	}
	p, err := assemble(sampleConfig(), nft.IPv4)
	must.NoError(t, err)
	l := newSyncLoop(p.families[0])
	p.tracker.servicesSynced, p.tracker.slicesSynced = true, true
	const work = 5 * time.Millisecond
	l.attempt("Sync", func() error { time.Sleep(work); return nil })
	if l.rest < 3*work || l.last.IsZero() {
		t.Errorf("sync of %s: got a rest of %s after %s, want at least %s", work, l.rest, l.last, 3*work)
	}
}

// While syncs fail, the number of triggers is limited. The next sync that
// succeeds measures each of them once.
func TestTriggersOfFailingSyncs(t *testing.T) {
	p, err := assemble(sampleConfig(), nft.IPv4)
	must.NoError(t, err)
	f := p.families[0]
	for _, n := range []int{maxTriggers - 1, 100} {
		p.tracker.pending[nft.IPv4].change(cluster.ServiceName{Name: "svc"}).triggers = make([]time.Time, n)
		f.handOver(partCost)
	}
	if len(f.triggers) != maxTriggers {
		t.Errorf("got %d triggers, want %d", len(f.triggers), maxTriggers)
	}
	for range 2 {
		f.ended(keep.SyncResult{Family: nft.IPv4})
		family := gather(t, p.Metrics())["kubeproxy_network_programming_duration_seconds"]
		if n := family.Metric[0].Histogram.GetSampleCount(); n != maxTriggers {
			t.Errorf("got %d measured triggers, want %d", n, maxTriggers)
		}
	}
}

// The loop syncs again until it has written all changes that a sync deferred.
func TestDeferredChanges(t *testing.T) {
	t.Parallel()
	tabletest.NewNamespace(t)
	config := sampleConfig()
	config.SyncPeriod = time.Hour // no periodic sync
	p := newTestProxier(t, config, nft.IPv4)
	tabletest.PassSample(p.sink)
	p.OnServiceSynced()
	p.OnEndpointSlicesSynced()
	loop := newSyncLoop(p.families[0])
	loop.attempt("Sync", loop.table.Sync)
	const endpoints = 600
	ports := 12 // more than one sync writes
	if testing.Short() {
		ports = 4 // emulated processors are slow
	}
	svc := tabletest.Service("heavy", "10.96.1.1", func(s *cluster.Service) { s.AffinityTimeout = time.Hour })
	var targets []cluster.EndpointPort
	svc.Ports, targets = tabletest.Ports(ports)
	var all []*cluster.Endpoint
	for i := range endpoints {
		e := tabletest.NumberedEndpoint(0, i)
		e.Ports = targets
		all = append(all, e)
	}
	p.sink.SetService(svc)
	p.sink.SetEndpoints(svc.Name, "slice", all)
	loop.attempt("Sync", loop.table.Sync)
	conn := nstest.Open(t)
	table := &nft.Table{Family: nft.IPv4, Name: ruleset.TableName}
	last := fmt.Sprintf("affinity.ns.heavy.tcp.p%05d", ports-1)
	isWritten := func() bool {
		_, ok, err := conn.FindChain(table, last)
		return ok && err == nil
	}
	if isWritten() && !testing.Short() {
		t.Error("got all written by one sync, want the rest deferred")
	}
	<-p.families[0].wake // so that only deferred changes request a sync
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { loop.run(ctx) })
	t.Cleanup(func() { stop(); running.Wait() })
	for range 4000 { // these changes may take a share of the CPU time only
		if isWritten() {
			return
		}
		time.Sleep(pollPeriod)
	}
	t.Errorf("chain %s was not written", last)
}

// The log names a few of the service ports that syncs wrote.
func TestWrittenPorts(t *testing.T) {
	commit := func(whole bool, names ...string) *table.Commit {
		c := &table.Commit{Whole: whole}
		for i, name := range names {
			plan := &ruleset.Plan{Service: tabletest.Service(name, "10.96.0.1", nil)}
			change := table.PortChange{After: plan}
			if i%2 == 1 {
				change = table.PortChange{Before: plan}
			}
			c.Changes = append(c.Changes, change)
		}
		return c
	}
	var w writtenPorts
	w.add(commit(true, "start"))
	w.add(commit(false, "a", "b"))
	w.add(commit(false, "a", "c", "d", "e", "f", "g"))
	want := []string{"ns/a", "ns/b", "ns/c", "ns/d", "ns/e"}
	if w.changes != 9 || !slices.Equal(w.names, want) {
		t.Errorf("got %d changes, names %q, want 9, %q", w.changes, w.names, want)
	}
}
