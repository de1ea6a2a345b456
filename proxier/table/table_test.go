package table

import (
	"net/netip"
	"testing"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
	"github.com/nftproxy/nftproxy/proxier/table/keep"
	"github.com/nftproxy/nftproxy/proxier/table/tabletest"
)

// newTable returns a Table for node1 after Setup in the test's namespace.
func newTable(t testing.TB, config Config, f nft.Family) *Table {
	t.Helper()
	table := newUnconnected(t, config, f)
	if err := table.Setup(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { table.Close() })
	return table
}

// newUnconnected returns a Table for node1 before Setup.
func newUnconnected(t testing.TB, config Config, f nft.Family) *Table {
	t.Helper()
	if config.Open == nil {
		config.Open = func() (keep.Kernel, error) {
			conn, err := nft.Open()
			return &tabletest.Kernel{Conn: conn}, err
		}
	}
	if config.Limits == nil {
		config.Limits = new(keep.DefaultLimits())
		config.Limits.FirstRetry = 0
	}
	tables, err := New(config, f)
	if err != nil {
		t.Fatal(err)
	}
	tables[0].SetNode(&cluster.Node{Name: "node1"})
	return tables[0]
}

// newSample returns an IPv4 Table in the test's namespace, after a sync with
// the sample Services.
func newSample(t testing.TB) *Table {
	t.Helper()
	table := newTable(t, sampleConfig(), nft.IPv4)
	tabletest.PassSample(table)
	tabletest.Sync(t, table)
	return table
}

// sampleConfig returns the configuration for the sample Services.
func sampleConfig() Config { return Config{Rules: tabletest.Rules()} }

func prefix(s string) netip.Prefix { return netip.MustParsePrefix(s) }

// injectFaults makes faults of the table's kernel possible.
func injectFaults(table *Table) *tabletest.Kernel {
	k := table.keeper.Kernel().(*tabletest.Kernel)
	*k = tabletest.Kernel{Conn: k.Conn}
	return k
}

// Names of sample Services.
var (
	web    = cluster.ServiceName{Namespace: "default", Name: "web"}
	sticky = cluster.ServiceName{Namespace: "default", Name: "sticky"}
)

// committedPlan returns the committed plan of the first port of a Service.
func committedPlan(table *Table, name cluster.ServiceName) *ruleset.Plan {
	return table.desired.services[name].ports[0].plan()
}

func TestSyncBeforeSetup(t *testing.T) {
	table := newUnconnected(t, sampleConfig(), nft.IPv4)
	if err := table.Sync(); err == nil {
		t.Error("Sync without Setup: got no error, want one")
	}
}

// plans returns the plans that were committed.
func plans(table *Table) map[*portState]*ruleset.Plan {
	all := make(map[*portState]*ruleset.Plan)
	for _, p := range table.desired.ports {
		if plan := p.plan(); plan != nil {
			all[p] = plan
		}
	}
	return all
}

// localhostConfig returns a configuration with NodePorts on localhost.
func localhostConfig() Config {
	config := sampleConfig()
	config.Rules.NodePortAddresses = ruleset.NodePortAddresses{
		Primary: true, CIDRs: tabletest.Prefixes("127.0.0.0/8", "::1/128"),
	}
	config.Rules.LocalhostNodePorts = true
	return config
}
