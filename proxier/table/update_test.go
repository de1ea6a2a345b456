package table

import (
	"cmp"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/table/tabletest"
)

// A sync, a Check and a Resync without a change commit nothing.
func TestSyncWithoutChange(t *testing.T) {
	tabletest.NewNamespace(t)
	table := newSample(t)
	generation := func() uint32 {
		g, err := table.keeper.Kernel().Generation()
		if err != nil {
			t.Fatal(err)
		}
		return g
	}
	before, transactions := generation(), table.Stats().Transactions
	tabletest.PassSample(table)
	tabletest.Sync(t, table)
	mustCheck(t, table)
	if err := table.Resync(); err != nil {
		t.Fatal(err)
	}
	if after := generation(); after != before || table.Stats().Transactions != transactions {
		t.Errorf("got generation %d and %d transactions, want %d and %d",
			after, table.Stats().Transactions, before, transactions)
	}
}

// If a commit fails, the next sync makes its change.
func TestFailedUpdate(t *testing.T) {
	tabletest.NewNamespace(t)
	table := newSample(t)
	k := injectFaults(table)
	k.FailCommits()
	table.SetService(tabletest.Service("svc", "10.96.0.99", nil))
	table.DeleteService(web)
	if err := table.Sync(); !errors.Is(err, tabletest.ErrCommit) {
		t.Fatalf("got %v, want %v", err, tabletest.ErrCommit)
	}
	k.OnCommit = nil
	tabletest.Sync(t, table)
	checkTable(t, table)
}

// A deleted Service leaves no row, chain or state, whatever its type and
// fields were.
func TestTypeChanges(t *testing.T) {
	tabletest.NewNamespace(t)
	table := newTable(t, sampleConfig(), nft.IPv4)
	name := cluster.ServiceName{Namespace: "ns", Name: "svc"}
	tabletest.SetEndpoint(table, name, tabletest.Endpoint("10.244.0.1"))
	tabletest.SetEndpoint(table, name, tabletest.Endpoint("10.244.0.2"))
	tabletest.Sync(t, table)
	empty := listTable(t, nft.IPv4)
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
		got, want := withoutAffinity(withoutIdle(listTable(t, nft.IPv4))), withoutAffinity(empty)
		if !slices.Equal(got, want) {
			t.Errorf("Service %d: the table is not empty after its deletion:\n%s", i, difference(want, got))
		}
	}
	if d := &table.desired; len(d.ports)+len(d.claims.owners) != 0 {
		t.Errorf("got %d service ports and %d owned frontends, want none", len(d.ports), len(d.claims.owners))
	}
}

// The sets of source ranges follow the lengths of the prefixes in use. No
// change needs a rewrite. A range of all addresses allows all clients.
func TestSourceSets(t *testing.T) {
	tabletest.NewNamespace(t)
	table := newTable(t, sampleConfig(), nft.IPv4)
	tabletest.Sync(t, table)
	other := tabletest.Service("other", "10.96.0.2", func(s *cluster.Service) {
		s.LoadBalancerIPs, s.SourceRanges = tabletest.Addrs("192.0.2.2"), tabletest.Prefixes("10.0.0.0/8")
	})
	for _, step := range []struct {
		ranges string
		other  bool
		want   []string // lengths of prefixes
	}{
		{"10.0.0.0/8 198.51.100.0/24 172.30.0.11/32", false, []string{"8", "24", "32"}},
		{"10.0.0.0/8", true, []string{"8"}},
		{"172.30.0.11/32", true, []string{"8", "32"}},
		{"198.51.100.0/24 203.0.113.0/24", false, []string{"24"}},
		{"198.51.100.0/24 0.0.0.0/0", false, nil},
		{"fd00::/8", true, []string{"8"}},
		{"", false, nil},
	} {
		table.SetService(tabletest.Service("svc", "10.96.0.1", func(s *cluster.Service) {
			s.LoadBalancerIPs = tabletest.Addrs("192.0.2.1")
			s.SourceRanges = tabletest.Prefixes(strings.Fields(step.ranges)...)
		}))
		if step.other {
			table.SetService(other)
		} else {
			table.DeleteService(other.Name)
		}
		tabletest.Sync(t, table)
		checkTable(t, table)
		mustCheck(t, table)
		var got []string
		for _, line := range listTable(t, nft.IPv4) {
			if _, bits, ok := strings.Cut(line, "set firewall-sources-"); ok {
				got = append(got, strings.Fields(bits)[0])
			}
		}
		slices.SortFunc(got, func(a, b string) int { return cmp.Or(len(a)-len(b), strings.Compare(a, b)) })
		if !slices.Equal(got, step.want) {
			t.Errorf("ranges %s: got sets of lengths %v, want %v", step.ranges, got, step.want)
		}
	}
	if s := table.Stats(); s.Rewrites != 1 || repairsOf(table) != 0 {
		t.Errorf("got %d rewrites and %d repairs, want the first rewrite only", s.Rewrites, repairsOf(table))
	}
}
