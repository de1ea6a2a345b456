package table

import (
	"errors"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/table/tabletest"
)

// A sync with nothing changed sends nothing to the kernel.
func TestIdleSync(t *testing.T) {
	tabletest.NewNamespace(t)
	table := newTable(t, sampleConfig(), nft.IPv4)
	tabletest.PassSample(table)
	tabletest.Sync(t, table)
	before, err := table.kernel.Generation()
	if err != nil {
		t.Fatal(err)
	}
	done := table.stats
	tabletest.PassSample(table)
	tabletest.Sync(t, table)
	if err := table.Check(); err != nil {
		t.Fatal(err)
	}
	if err := table.Resync(); err != nil {
		t.Fatal(err)
	}
	after, err := table.kernel.Generation()
	if err != nil {
		t.Fatal(err)
	}
	if before != after || table.stats.Transactions != done.Transactions {
		t.Errorf("generation went from %d to %d, statistics from %+v to %+v", before, after, done, table.stats)
	}
}

// What could not be committed is not taken for done.
func TestCommitBeforeRemembering(t *testing.T) {
	tabletest.NewNamespace(t)
	table := newTable(t, sampleConfig(), nft.IPv4)
	tabletest.PassSample(table)
	tabletest.Sync(t, table)
	k := injectFaults(table)
	k.FailCommits()
	table.SetService(tabletest.Service("svc", "10.96.0.99", nil))
	table.DeleteService(cluster.ServiceName{Namespace: "default", Name: "web"})
	if err := table.Sync(); !errors.Is(err, tabletest.ErrCommit) {
		t.Fatalf("got %v, want %v", err, tabletest.ErrCommit)
	}
	k.OnCommit = nil
	tabletest.Sync(t, table)
	checkTable(t, table)
}

// Whatever a Service becomes, it leaves nothing behind of what it was.
func TestTypeChanges(t *testing.T) {
	tabletest.NewNamespace(t)
	table := newTable(t, sampleConfig(), nft.IPv4)
	name := cluster.ServiceName{Namespace: "ns", Name: "svc"}
	table.SetEndpoint(name, tabletest.Endpoint("10.244.0.1"))
	table.SetEndpoint(name, tabletest.Endpoint("10.244.0.2"))
	tabletest.Sync(t, table)
	empty := list(t, nft.IPv4)
	for i, change := range []func(*cluster.Service){
		nil,
		func(s *cluster.Service) { s.Ports[0].NodePort = 30080 },
		func(s *cluster.Service) {
			s.Ports[0].NodePort = 30080
			s.LoadBalancerIPs, s.SourceRanges = []netip.Addr{addr("192.0.2.1")}, []netip.Prefix{prefix("10.0.0.0/8")}
			s.ExternalPolicy = cluster.PolicyLocal
		},
		func(s *cluster.Service) { s.AffinityTimeout, s.Ports[0].NodePort = time.Hour, 30080 },
		func(s *cluster.Service) { s.AffinityTimeout, s.InternalPolicy = time.Hour, cluster.PolicyLocal },
		func(s *cluster.Service) { s.Ports[0].Protocol = cluster.UDP },
	} {
		table.SetService(tabletest.Service("svc", "10.96.0.1", change))
		tabletest.Sync(t, table)
		checkTable(t, table)
		table.DeleteService(name)
		tabletest.Sync(t, table)
		got, want := ruleless(withoutIdle(list(t, nft.IPv4))), ruleless(empty)
		if !slices.Equal(got, want) {
			t.Errorf("step %d left something behind:\n%s", i, difference(want, got))
		}
	}
	d, c := &table.desired, table.committed
	if len(d.ports)+len(d.claims.owners)+len(c.plans)+len(c.shared)+len(table.unused) != 0 {
		t.Errorf("left: %d ports, %d frontends, %d plans, %d shared rows, %d unused chains",
			len(d.ports), len(d.claims.owners), len(c.plans), len(c.shared), len(table.unused))
	}
}
