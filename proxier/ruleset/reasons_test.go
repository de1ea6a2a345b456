package ruleset

import (
	"fmt"
	"maps"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/test/must"
	"github.com/nftproxy/nftproxy/test/script"
)

// Each code that is defined has a line in one of the tables of
// docs/troubleshooting.md, which are those of codeDocs. A table without
// remedies has no column for them.
func TestCodes(t *testing.T) {
	const file = "../../docs/troubleshooting.md"
	page, err := os.ReadFile(file)
	must.NoError(t, err)
	reasons, err := os.ReadFile("reasons.go")
	must.NoError(t, err)
	defined, listed := make(map[string]int), make(map[string]int)
	for _, found := range regexp.MustCompile(`(?m)^\t\w+ +Code += "(\w+)"`).FindAllStringSubmatch(string(reasons), -1) {
		defined[found[1]]++
	}
	tables := regexp.MustCompile(`(?m)^\| code .*\n(\|.*\n)*`)
	n := 0
	got := tables.ReplaceAllStringFunc(string(page), func(string) string {
		var table strings.Builder
		hasRemedies := codeDocs[n][0].remedy != ""
		line := func(code, cause, remedy string) {
			fmt.Fprintf(&table, "| %s | %s |", code, cause)
			if hasRemedies {
				fmt.Fprintf(&table, " %s |", remedy)
			}
			table.WriteByte('\n')
		}
		line("code", "cause", "remedy")
		line("---", "---", "---")
		for _, c := range codeDocs[n] {
			listed[string(c.code)]++
			if c.cause == "" || (c.remedy != "") != hasRemedies {
				t.Errorf("%s has no cause or remedy", c.code)
			}
			line("`"+string(c.code)+"`", c.cause, c.remedy)
		}
		n++
		return table.String()
	})
	script.Golden(t, file, got)
	if !maps.Equal(listed, defined) || len(defined) < 40 || n != len(codeDocs) {
		t.Errorf("got codes in %d tables\n%v\nwant\n%v", n, listed, defined)
	}
}

// A remedy for people has no links, and one that is none is empty.
func TestRemedies(t *testing.T) {
	for code, want := range map[Code]string{
		HealthCheck: "", NoPods: "correct selector or labels, or start pods",
		Damaged: "wait for the repair, and stop the other program",
	} {
		if got := code.With("").Remedy; got != want {
			t.Errorf("%s: got %q, want %q", code, got, want)
		}
	}
}
