package nft_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/test/lab/listing"
	"github.com/nftproxy/nftproxy/test/lab/nstest"
	"github.com/nftproxy/nftproxy/test/must"
)

// checkTexts fails the test if a rule of the table has another text than the
// one that is found, or if nft lists a rule in another way.
func checkTexts(t testing.TB, c *nft.Conn, table *nft.Table) {
	t.Helper()
	for _, chain := range table.Chains {
		found, err := c.Rules(table, chain.Name)
		if err != nil || len(found) != len(chain.Rules) {
			t.Fatalf("chain %s: got %d rules, %v; want %d", chain.Name, len(found), err, len(chain.Rules))
		}
		for i, r := range chain.Rules {
			if got, want := found[i].Text(table.Family), r.Text(table.Family); !found[i].Equal(r) || got != want {
				t.Errorf("rule %d of chain %s: got\n%s\nwant\n%s", i, chain.Name, got, want)
			}
		}
	}
	checkListing(t, c)
}

// checkListing fails the test if nft lists a rule of the namespace in another
// way than Rule.Text. It returns the number of rules.
func checkListing(t testing.TB, c *nft.Conn) (rules int) {
	t.Helper()
	families := map[string]nft.Family{"ip": nft.IPv4, "ip6": nft.IPv6, "inet": nft.Inet}
	for line := range strings.Lines(nstest.RunNFT(t, "list tables")) { // table ip lb
		words := strings.Fields(line)
		table := &nft.Table{Family: families[words[1]], Name: words[2]}
		want := make(map[string][]string)
		for _, l := range listing.Parse(words[1], nstest.RunNFT(t, "list "+strings.Join(words, " "))) {
			if chain, ok := strings.CutPrefix(l.Object, "chain "); ok && l.Text != "" &&
				!strings.HasPrefix(l.Text, "type ") {
				want[chain] = append(want[chain], l.Text)
			}
		}
		chains, err := c.Chains(table)
		must.NoError(t, err)
		for _, chain := range chains {
			found, err := c.Rules(table, chain.Name)
			if err != nil || len(found) != len(want[chain.Name]) {
				t.Fatalf("%s, chain %s: got %d rules, %v; want %q", table, chain.Name, len(found), err,
					want[chain.Name])
			}
			for i, r := range found {
				if got := asListed(r.Text(table.Family)); got != want[chain.Name][i] {
					t.Errorf("%s, chain %s: got\n%s\nwant\n%s", table, chain.Name, got, want[chain.Name][i])
				}
			}
			rules += len(found)
		}
	}
	return rules
}

// nft lists each rule that the proxy and its command trace write as Rule.Text
// returns it. Tests of their packages compare these files with the rules.
func TestRuleTexts(t *testing.T) {
	t.Parallel()
	c := connect(t)
	var files []string
	patterns, least := []string{
		"../proxier/table/testdata/sample-*.nft", "../cmd/kube-proxy/operator/trace/testdata/tables.txtar",
		"../proxier/testdata/golden/*.nft",
	}, 400
	if testing.Short() { // on emulated machines, the samples of the whole table
		patterns, least = patterns[:2], 50
	}
	for _, pattern := range patterns {
		found, err := filepath.Glob(pattern)
		if err != nil || len(found) == 0 {
			t.Fatalf("got files %q, %v of %s", found, err, pattern)
		}
		files = append(files, found...)
	}
	rules := 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		must.NoError(t, err)
		for section := range strings.SplitSeq(string(text), "\n-- ") {
			_, after, named := strings.Cut(section, " --\n")
			if named {
				section = after
			}
			load(t, strings.ReplaceAll(section, "\tflags owner\n", "")) // which would end with nft
			rules += checkListing(t, c)
		}
	}
	if rules < least {
		t.Errorf("got %d rules, want at least %d", rules, least)
	}
}

// nft lists rules of other programs as Rule.Text returns them, but for sets
// without a name and for expressions that the package does not know.
func TestForeignRuleTexts(t *testing.T) {
	t.Parallel()
	archive, err := txtar.ParseFile("testdata/foreign.txtar")
	must.NoError(t, err)
	rules := make(map[string]string)
	for _, file := range archive.Files {
		for family := range strings.FieldsSeq(file.Name) {
			rules[family] += string(file.Data)
		}
	}
	c := connect(t)
	for family, rules := range rules {
		load(t, fmt.Sprintf("table %s fw {\n set sockets { type ipv4_addr . inet_service; }\n"+
			"ct timeout slow { protocol udp; policy = { replied : 300 }; }\n"+
			"chain other { }\n chain rules {\n%s}\n}", family, rules))
		if n := checkListing(t, c); n != strings.Count(rules, "\n") {
			t.Errorf("%s: got %d rules, want %d", family, n, strings.Count(rules, "\n"))
		}
	}
}
