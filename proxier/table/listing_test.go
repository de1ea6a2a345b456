package table

import (
	"bytes"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
	"github.com/nftproxy/nftproxy/proxier/table/tabletest"
)

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

// fresh returns what the desired table of table lists as when nft loads it into an empty namespace.
func fresh(t testing.TB, table *Table) []string {
	t.Helper()
	var text bytes.Buffer
	if err := table.Fprint(&text); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("sh", "-c", "nft -f - && nft list table "+table.Family().String()+" "+ruleset.TableName)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	cmd.Stdin = strings.NewReader(text.String())
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("nft does not load what Fprint writes: %v\n%s\n%s", err, out, text.String())
	}
	return canonical(string(out))
}

var balancerChain = regexp.MustCompile(`^chain ((balance|balance-all|external|nodeport|nodeport-balance|nodeport-balance-all)-\d+) {`)

var affinitySet = regexp.MustCompile(`^set (clients-\d+) {`)

// withoutIdle returns a listing without the balancers that no row leads to and the
// affinity sets that no rule uses: they are kept for the next Service.
func withoutIdle(listing []string) []string {
	all := strings.Join(listing, "\n") + "\n"
	return slices.DeleteFunc(slices.Clone(listing), func(block string) bool {
		if m := affinitySet.FindStringSubmatch(block); m != nil {
			return !strings.Contains(all, "@"+m[1]+" ")
		}
		m := balancerChain.FindStringSubmatch(block)
		return m != nil && !regexp.MustCompile(`goto `+m[1]+`\b[^-]`).MatchString(all)
	})
}

// checkTable compares the table in the kernel with what the table was told.
func checkTable(t testing.TB, table *Table) {
	t.Helper()
	want, got := fresh(t, table), withoutIdle(list(t, table.Family()))
	if !slices.Equal(want, got) {
		t.Fatalf("the table is not as if written fresh:\n%s", difference(want, got))
	}
}

// checkTableBut is checkTable without one set.
func checkTableBut(t *testing.T, b *Table, set string) {
	t.Helper()
	without := func(blocks []string) []string {
		return slices.DeleteFunc(blocks, func(b string) bool { return strings.HasPrefix(b, "set "+set+" {") })
	}
	want, got := without(fresh(t, b)), without(withoutIdle(list(t, b.Family())))
	if !slices.Equal(want, got) {
		t.Errorf("the table is not as if written fresh:\n%s", difference(want, got))
	}
}

// ruleless returns the blocks of a listing without chains of session affinity,
// whose rules can be in another order, and without the reserved ids.
func ruleless(listing []string) []string {
	return slices.DeleteFunc(slices.Clone(listing), func(b string) bool {
		return strings.HasPrefix(b, "chain affinity.") || strings.HasPrefix(b, "set reserved-affinity-ids ")
	})
}
