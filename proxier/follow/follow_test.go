package follow

import (
	"fmt"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/metric"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
	"github.com/nftproxy/nftproxy/proxier/table"
	"github.com/nftproxy/nftproxy/proxier/table/keep"
	"github.com/nftproxy/nftproxy/proxier/table/tabletest"
)

// observer is a table.Observer of commits.
type observer func(*table.Commit)

func (o observer) Committed(c *table.Commit) { o(c) }

func (observer) Synced(keep.SyncResult) {}

// newFollowed returns the IPv4 table of a new network namespace, with a
// follower.
func newFollowed(t testing.TB, rules ruleset.Config, f follower) *table.Table {
	t.Helper()
	tabletest.NewNamespace(t)
	tables, err := table.New(table.Config{
		Rules: rules, Events: new(tabletest.Events), Observer: observer(f.committed),
	}, nft.IPv4)
	if err == nil {
		err = tables[0].Setup()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tables[0].Close() })
	return tables[0]
}

// newFollowers returns all followers of some families, and their metrics.
func newFollowers(t *testing.T, rules ruleset.Config, families ...nft.Family) (*Followers, *metric.Set) {
	t.Helper()
	m := metric.NewSet(families...)
	f, err := New(Config{
		NodeName: "node1", Rules: rules, Events: new(tabletest.Events), Metrics: m,
		Healthy: func() bool { return true },
	}, families...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f, m
}

// A commit goes to the followers of its family, in this order.
func TestFollowers(t *testing.T) {
	tabletest.NewNamespace(t)
	f, _ := newFollowers(t, ruleset.Config{
		NodePortAddresses:  ruleset.NodePortAddresses{CIDRs: tabletest.Prefixes("127.0.0.0/8")},
		LocalhostNodePorts: true, ServiceMetrics: ruleset.ServiceMetricsAll, ResetStaleConnections: true,
	}, nft.IPv4, nft.IPv6)
	for _, tc := range []struct {
		family nft.Family
		want   string
	}{
		{nft.IPv4, "healthChecks balanceEvents localhostPorts serviceConnections staleFlows staleConnections"},
		{nft.IPv6, "healthChecks balanceEvents serviceConnections staleFlows staleConnections"},
	} {
		var got []string
		for _, one := range f.following[tc.family] {
			got = append(got, strings.TrimPrefix(fmt.Sprintf("%T", one), "*follow."))
		}
		if got := strings.Join(got, " "); got != tc.want {
			t.Errorf("%v: got %s, want %s", tc.family, got, tc.want)
		}
	}
	if _, ok := f.Localhost(nft.IPv4, 30000); !ok {
		t.Error("IPv4: NodePorts are not served on localhost")
	}
	if _, ok := f.Localhost(nft.IPv6, 30000); ok {
		t.Error("IPv6: NodePorts are served on localhost")
	}
}

// rewrite makes a table be written as a whole.
func rewrite(t *testing.T, followed *table.Table) {
	t.Helper()
	tabletest.NFT(t, "", "flush", "ruleset")
	if err := followed.Check(); err != nil {
		t.Fatal(err)
	}
}
