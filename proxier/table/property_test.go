package table

import (
	"fmt"
	"testing"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
	"github.com/nftproxy/nftproxy/proxier/table/tabletest"
)

// randomConfig returns a configuration with NodePorts on all addresses, or on
// the addresses in cluster.Node.NodePortIPs. The connections of some Services
// are counted, and some service ports have numbers.
func randomConfig(allNodePortAddresses bool) Config {
	c := sampleConfig()
	c.Rules.ServiceMetrics = ruleset.ServiceMetricsAnnotated
	c.Rules.NumberLimit = 3
	if !allNodePortAddresses {
		c.Rules.NodePortAddresses = ruleset.NodePortAddresses{CIDRs: tabletest.Prefixes("10.0.0.0/8", "fd00::/8")}
	}
	return c
}

// rounds returns the number of rounds of a random test: n, or fewer with
// -short, which tests on emulated machines use.
func rounds(n int) int {
	if testing.Short() {
		return (n + 4) / 5
	}
	return n
}

// After random changes, a sync makes the table in the kernel equal to the
// desired table, without a rewrite. -histories sets the number of tests, too.
func TestRandomChanges(t *testing.T) {
	for _, f := range []nft.Family{nft.IPv4, nft.IPv6} {
		for seed := range max(2, *histories/4) {
			t.Run(fmt.Sprintf("%s/%d", f, seed), func(t *testing.T) {
				t.Parallel()
				tabletest.NewNamespace(t)
				c := tabletest.NewRandom(seed, 1, f)
				table := newTable(t, randomConfig(seed%2 == 0), f)
				*table.config.Limits = *smallParts()
				for round := range rounds(20) {
					for range 1 + c.IntN(12) {
						c.Change(table)
					}
					tabletest.Sync(t, table)
					checkDiff(t, table)
					if round%5 == 0 { // nft is slow
						checkTable(t, table)
					}
				}
				if got := table.Stats().Rewrites; got > 1 {
					t.Errorf("got %d rewrites, want 1 for the first sync", got)
				}
			})
		}
	}
}
