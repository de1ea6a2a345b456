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

// The documentation has the results, as the scenarios demand them.
func TestDocumentation(t *testing.T) {
	var table strings.Builder
	table.WriteString("\n| program | what it does | Services |\n| --- | --- | --- |\n")
	for _, s := range scenarios() {
		name := s.Name
		for _, p := range s.Packages {
			name += fmt.Sprintf(" (%s %s)", p, version(t, "bookworm", p))
		}
		for _, step := range s.Steps {
			fmt.Fprintf(&table, "| %s | %s | %s |\n", name, step.Does, step.result())
			name = ""
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
