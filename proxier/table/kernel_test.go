package table

import (
	"net/netip"
	"os"
	"regexp"
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
	b := unconnected(t, config, f)
	if err := b.Setup(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	return b
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

// injectFaults makes faults of the table's kernel possible.
func injectFaults(b *Table) *tabletest.Kernel {
	k := &tabletest.Kernel{Conn: b.kernel.(*nft.Conn)}
	b.kernel = k
	return k
}

// list returns what nft lists of the table, in an order that does not depend on that of writing.
func list(t testing.TB, f nft.Family) []string {
	t.Helper()
	return canonical(tabletest.NFT(t, "", "list", "table", f.String(), ruleset.TableName))
}

var (
	elementComments = regexp.MustCompile(` comment "[^"]*"( :|,| \}|$)`)
	expirations     = regexp.MustCompile(` expires \w+`)
)

// canonical splits a listing into its sets and chains, with their elements in order, without comments on elements, sorted.
func canonical(listing string) []string {
	var blocks []string
	for _, block := range strings.Split(strings.ReplaceAll(listing, "\n\t}\n", "\n\t}\x00"), "\x00") {
		head, elements, ok := strings.Cut(block, "elements = {")
		if ok {
			elements, tail, _ := strings.Cut(elements, "}")
			var list []string
			for _, e := range strings.Split(elements, ",") {
				e = strings.TrimSpace(e)
				e = elementComments.ReplaceAllString(e, "$1")
				list = append(list, expirations.ReplaceAllString(e, ""))
			}
			slices.Sort(list)
			block = head + "elements = {\n" + strings.Join(list, "\n") + "}" + tail
		}
		blocks = append(blocks, strings.TrimSpace(block))
	}
	slices.Sort(blocks)
	return blocks
}

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }

func prefix(s string) netip.Prefix { return netip.MustParsePrefix(s) }

// sampleConfig returns the configuration for the sample Services.
func sampleConfig() Config { return Config{Rules: tabletest.Rules()} }

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
			b := newTable(t, sampleConfig(), tt.family)
			tabletest.PassSample(b)
			tabletest.Sync(t, b)
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

// difference returns the blocks that are in one listing only.
func difference(want, got []string) string {
	var s strings.Builder
	for _, b := range want {
		if !slices.Contains(got, b) {
			s.WriteString("- " + b + "\n")
		}
	}
	for _, b := range got {
		if !slices.Contains(want, b) {
			s.WriteString("+ " + b + "\n")
		}
	}
	return s.String()
}
