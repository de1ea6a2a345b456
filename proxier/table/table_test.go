package table

import (
	"maps"
	"net/netip"
	"os"
	"slices"
	"strings"
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

// recordEvents returns the configuration for the sample Services, with a
// recorder.
func recordEvents() (Config, *tabletest.Events) {
	recorded := new(tabletest.Events)
	config := sampleConfig()
	config.Events = recorded
	return config, recorded
}

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }

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
	lb     = cluster.ServiceName{Namespace: "default", Name: "lb"}
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

// The kernel lists the table of the sample Services like the reference
// ruleset, which nft loads. nft can also load the listing.
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
			want := listTable(t, tt.family)

			tabletest.NFT(t, "", "flush", "ruleset")
			table := newTable(t, sampleConfig(), tt.family)
			tabletest.PassSample(table)
			tabletest.Sync(t, table)
			if got := listTable(t, tt.family); !slices.Equal(got, want) {
				t.Errorf("the table differs from %s:\n%s", tt.file, difference(want, got))
			}

			listing := tabletest.NFT(t, "", "list", "table", tt.family.String(), ruleset.TableName)
			tabletest.LoadNFT(t, "flush ruleset\n"+listing)
			if got := listTable(t, tt.family); !slices.Equal(got, want) {
				t.Errorf("after loading the listing, the table differs from %s:\n%s", tt.file, difference(want, got))
			}
		})
	}
}

// kube-proxy deletes chains whose names contain a slash and sets whose names
// begin with "affinity-", because it takes them for its own
// (isServiceChainName and isAffinitySetName in its proxier.go). Its
// transactions would fail as long as our rules or rows refer to them.
func TestNamesThatKubeProxyDeletes(t *testing.T) {
	tabletest.NewNamespace(t)
	table := newSample(t)
	sets, err := table.keeper.Kernel().Sets(table.keeper.Program())
	if err != nil {
		t.Fatal(err)
	}
	chains, err := table.keeper.Kernel().Chains(table.keeper.Program())
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range sets {
		if strings.HasPrefix(s.Name, "affinity-") {
			t.Errorf("set %s: kube-proxy deletes it", s.Name)
		}
	}
	for _, c := range chains {
		if strings.Contains(c.Name, "/") {
			t.Errorf("chain %s: kube-proxy deletes it", c.Name)
		}
	}
}

// A rewrite removes Services that were deleted since the commit before.
func TestRewriteWithoutServices(t *testing.T) {
	tabletest.NewNamespace(t)
	table := newSample(t)
	for name := range table.desired.services {
		table.DeleteService(name)
	}
	table.keeper.Distrust(keep.RewriteDamage, "test")
	svc := tabletest.Service("only", "10.96.0.1", nil)
	table.SetService(svc)
	tabletest.SetEndpoint(table, svc.Name, tabletest.Endpoint("10.244.0.1"))
	tabletest.Sync(t, table)
	checkTable(t, table)
}

// Services with one endpoint need no set, map or chain of their own: the kernel
// finds sets by walking a list.
func TestServicesShareSets(t *testing.T) {
	tabletest.NewNamespace(t)
	table := newTable(t, sampleConfig(), nft.IPv4)
	count := func(services int) map[string]int {
		for i := range services {
			s := tabletest.NumberedService(i)
			table.SetService(s)
			tabletest.SetEndpoint(table, s.Name, tabletest.NumberedEndpoint(i, 0))
		}
		tabletest.Sync(t, table)
		n := map[string]int{}
		for _, kind := range []string{"\tset ", "\tmap ", "\tchain "} {
			n[kind] = strings.Count(tabletest.NFT(t, "", "--terse", "list", "table", "ip", "kube-proxy"), kind)
		}
		return n
	}
	if one, many := count(1), count(50); !maps.Equal(one, many) {
		t.Errorf("got %v with 1 Service, %v with 50", one, many)
	}
}
