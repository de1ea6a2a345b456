package follow

import (
	"fmt"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/metric"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
	"github.com/nftproxy/nftproxy/test/tabletest"
)

// A commit goes to the followers of its family, in this order.
func TestFollowers(t *testing.T) {
	tabletest.NewNamespace(t)
	both := []nft.Family{nft.IPv4, nft.IPv6}
	f, err := New(Config{
		Rules: ruleset.Config{
			NodePortAddresses:  ruleset.NodePortAddresses{CIDRs: tabletest.Prefixes("127.0.0.0/8")},
			LocalhostNodePorts: true, ServiceMetrics: ruleset.ServiceMetricsAll, ResetStaleConnections: true,
		},
		Events: new(tabletest.Events), Metrics: metric.NewSet(both...), Healthy: func() bool { return true },
	}, both...)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, tc := range []struct {
		family nft.Family
		want   string
	}{
		{nft.IPv4, "changes healthChecks balanceEvents localhostPorts serviceConnections ejectionEvents staleFlows " +
			"staleFlows staleConnections"},
		{nft.IPv6, "changes healthChecks balanceEvents serviceConnections ejectionEvents staleFlows staleFlows " +
			"staleConnections"},
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
