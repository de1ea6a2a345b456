package neighbours

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/test/script"
)

const (
	page  = "../../docs/neighbours.md"
	begin = "<!-- results of test/neighbours -->\n"
	end   = "<!-- end of results -->\n"
)

// The documentation has the results, as the scenarios demand them: a line for
// steps in a row with the same one.
func TestDocumentation(t *testing.T) {
	var table strings.Builder
	table.WriteString("\n| program | what it does | Services |\n| --- | --- | --- |\n")
	for _, s := range scenarios() {
		name := s.Name
		for _, p := range s.Packages {
			name += fmt.Sprintf(" (%s %s)", p, version(t, "bookworm", p))
		}
		for i := 0; i < len(s.Steps); name = "" {
			result := s.Steps[i].result()
			does := s.Steps[i].Does
			for i++; i < len(s.Steps) && s.Steps[i].result() == result; i++ {
				does += "; " + s.Steps[i].Does
			}
			fmt.Fprintf(&table, "| %s | %s | %s |\n", name, does, result)
		}
	}
	table.WriteString("\n| nft | lists the tables | loads its listing | the proxy takes over and cleans up |\n" +
		"| --- | --- | --- | --- |\n")
	for _, v := range nftVersions() {
		if v.listsOnly {
			fmt.Fprintf(&table, "| %s | yes | no | |\n", v.name())
		} else {
			fmt.Fprintf(&table, "| %s | yes | yes | yes |\n", v.name())
		}
	}
	data, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := strings.Cut(string(data), begin)
	_, after, ended := strings.Cut(rest, end)
	if !found || !ended {
		t.Fatalf("%s has no place for the results", page)
	}
	want := before + begin + table.String() + "\n" + end + after
	if want == string(data) {
		return
	}
	if !script.Update() {
		t.Fatalf("%s differs from the results: run go test ./test/neighbours -update; want\n%s", page, table.String())
	}
	if err := os.WriteFile(page, []byte(want), 0o644); err != nil {
		t.Fatal(err)
	}
}
