package table

import (
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
	"github.com/nftproxy/nftproxy/proxier/table/tabletest"
)

// newTable returns a set-up Table in the test's namespace, for node1.
func newTable(t testing.TB, config Config, f nft.Family) *Table {
	t.Helper()
	table := unconnected(t, config, f)
	if err := table.Setup(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { table.Close() })
	return table
}

// unconnected returns a Table without a connection to the kernel, for node1.
func unconnected(t testing.TB, config Config, f nft.Family) *Table {
	t.Helper()
	tables, err := New(config, f)
	if err != nil {
		t.Fatal(err)
	}
	tables[0].SetNode(&cluster.Node{Name: "node1"})
	return tables[0]
}

// sampleConfig returns the configuration for the sample Services.
func sampleConfig() Config { return Config{Rules: tabletest.Rules()} }

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }

func prefix(s string) netip.Prefix { return netip.MustParsePrefix(s) }

// injectFaults makes faults of the table's kernel possible.
func injectFaults(table *Table) *tabletest.Kernel {
	k := &tabletest.Kernel{Conn: table.kernel.(*nft.Conn)}
	table.kernel = k
	return k
}

// committedPlan returns the committed plan of the first port of a Service.
func committedPlan(table *Table, name cluster.ServiceName) *ruleset.Plan {
	return table.committed.plans[table.desired.services[name].ports[0]]
}

func TestNothingBeforeSetup(t *testing.T) {
	table := unconnected(t, sampleConfig(), nft.IPv4)
	if err := table.Sync(); err == nil {
		t.Error("Sync without Setup is no error")
	}
}

// What is written for the sample cluster lists as the reference ruleset loaded by nft does, and the listing loads again.
func TestSampleRuleset(t *testing.T) {
	for _, tt := range []struct {
		family nft.Family
		file   string
	}{{nft.IPv4, "testdata/sample-ipv4.nft"}, {nft.IPv6, "testdata/sample-ipv6.nft"}} {
		t.Run(tt.family.String(), func(t *testing.T) {
			tabletest.NewNamespace(t)
			reference, err := os.ReadFile(tt.file)
			if err != nil {
				t.Fatal(err)
			}
			tabletest.LoadNFT(t, string(reference))
			want := list(t, tt.family)

			tabletest.NFT(t, "", "flush", "ruleset")
			table := newTable(t, sampleConfig(), tt.family)
			tabletest.PassSample(table)
			tabletest.Sync(t, table)
			if got := list(t, tt.family); !slices.Equal(got, want) {
				t.Errorf("%s lists differently:\n%s", tt.family, difference(want, got))
			}

			listing := tabletest.NFT(t, "", "list", "table", tt.family.String(), ruleset.TableName)
			tabletest.LoadNFT(t, "flush ruleset\n"+listing)
			if again := list(t, tt.family); !slices.Equal(again, want) {
				t.Errorf("%s: the listing does not load as it was:\n%s", tt.family, difference(want, again))
			}
		})
	}
}

// kube-proxy deletes chains whose names contain a slash and sets whose names begin
// with "affinity-", which it takes for stale ones of its own (isServiceChainName
// and isAffinitySetName in its proxier.go). Its transactions would fail as long as
// rules or rows of ours refer to them.
func TestNamesThatKubeProxyDeletes(t *testing.T) {
	tabletest.NewNamespace(t)
	table := newTable(t, sampleConfig(), nft.IPv4)
	tabletest.PassSample(table)
	tabletest.Sync(t, table)
	sets, err := table.kernel.Sets(table.committed.program)
	if err != nil {
		t.Fatal(err)
	}
	chains, err := table.kernel.Chains(table.committed.program)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range sets {
		if strings.HasPrefix(s.Name, "affinity-") {
			t.Errorf("set %s", s.Name)
		}
	}
	for _, c := range chains {
		if strings.Contains(c.Name, "/") {
			t.Errorf("chain %s", c.Name)
		}
	}
}

// Reset forgets everything; what is told anew replaces what is in the kernel.
func TestReset(t *testing.T) {
	tabletest.NewNamespace(t)
	table := newTable(t, sampleConfig(), nft.IPv4)
	tabletest.PassSample(table)
	tabletest.Sync(t, table)
	table.Reset()
	svc := tabletest.Service("only", "10.96.0.1", nil)
	table.SetService(svc)
	table.SetEndpoint(svc.Name, tabletest.Endpoint("10.244.0.1"))
	tabletest.Sync(t, table)
	checkTable(t, table)
}
