package explain_test

import (
	"bytes"
	"flag"
	"net/netip"
	"os"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"

	"github.com/nftproxy/nftproxy/cmd/kube-proxy/operator/explain"
	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
	"github.com/nftproxy/nftproxy/proxier/table"
	"github.com/nftproxy/nftproxy/proxier/table/tabletest"
)

var update = flag.Bool("update", false, "write the golden files")

// newTables returns tables of this node for both families.
func newTables(t testing.TB, rules ruleset.Config) []*table.Table {
	t.Helper()
	tables, err := table.New(table.Config{Rules: rules}, nft.IPv4, nft.IPv6)
	if err != nil {
		t.Fatal(err)
	}
	for _, tab := range tables {
		t.Cleanup(func() { tab.Close() })
		if err := tab.Setup(); err != nil {
			t.Fatal(err)
		}
	}
	return tables
}

// passTo passes objects to the tables and syncs them.
func passTo(t testing.TB, tables []*table.Table, pass func(cluster.Sink)) {
	t.Helper()
	for _, tab := range tables {
		pass(tab)
		tabletest.Sync(t, tab)
	}
}

// mustExpect returns the expected table.
func mustExpect(t testing.TB, tab *table.Table) *table.Expected {
	t.Helper()
	expected, err := tab.Expected(nil)
	if err != nil {
		t.Fatal(err)
	}
	return expected
}

// parseQuery parses "DESTINATION PROTOCOL from SOURCE".
func parseQuery(t testing.TB, text string) explain.Query {
	t.Helper()
	words := strings.Fields(text)
	if len(words) != 4 {
		t.Fatalf("query %q: want DESTINATION PROTOCOL from SOURCE", text)
	}
	protocol, err := cluster.ParseProtocol(words[1])
	if err != nil {
		t.Fatal(err)
	}
	return explain.Query{
		Destination: netip.MustParseAddrPort(words[0]), Protocol: protocol, Source: netip.MustParseAddr(words[3]),
	}
}

// ask explains a packet.
func ask(t testing.TB, text string) *explain.Result {
	t.Helper()
	q := parseQuery(t, text)
	k, err := explain.OpenKernel(nft.FamilyOf(q.Destination.Addr()))
	if err != nil {
		t.Fatal(err)
	}
	defer k.Close()
	r, err := k.Explain(q)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return r
}

// The sections of testdata/sample.txtar are named after queries and contain
// what is printed for the sample Services; a query that ends with "wide" is
// printed wide.
func TestSample(t *testing.T) {
	tabletest.NewNode(t)
	passTo(t, newTables(t, tabletest.Rules()), tabletest.PassSample)
	const file = "testdata/sample.txtar"
	golden, err := txtar.ParseFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for i, section := range golden.Files {
		query, wide := strings.CutSuffix(section.Name, " wide")
		var got bytes.Buffer
		ask(t, query).Print(&got, wide)
		if *update {
			golden.Files[i].Data = append(got.Bytes(), '\n')
			continue
		}
		if want := strings.TrimSuffix(string(section.Data), "\n"); got.String() != want {
			t.Errorf("%s:\n%s\nwant:\n%s", section.Name, got.String(), want)
		}
	}
	if *update {
		if err := os.WriteFile(file, txtar.Format(golden), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
