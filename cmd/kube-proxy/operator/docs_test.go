package operator_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/test/must"
)

// verb matches the name of a command in the help.
var verb = regexp.MustCompile(`(?m)^  ([a-z]+)  `)

// Each command has a page with the text and the flags of its help.
func TestDocs(t *testing.T) {
	for _, f := range []struct{ format, prefix, suffix, flag string }{
		{"man", "nftproxy-", ".1", `\fB--timeout\fP=30s`},
		{"markdown", "nftproxy_", ".md", "--timeout TIME"},
	} {
		dir := filepath.Join(t.TempDir(), "new", "docs")
		if got := run("docs", "--format", f.format, dir); got != "" {
			t.Fatalf("%s: got %s", f.format, got)
		}
		verbs := verb.FindAllStringSubmatch(run("--help"), -1)
		if len(verbs) < 10 {
			t.Fatalf("got %d commands in the help", len(verbs))
		}
		for _, v := range verbs {
			if v[1] == "help" {
				continue
			}
			if _, err := os.Stat(filepath.Join(dir, f.prefix+v[1]+f.suffix)); err != nil {
				t.Error(err)
			}
		}
		page, err := os.ReadFile(filepath.Join(dir, f.prefix+"services"+f.suffix))
		must.NoError(t, err)
		for _, want := range []string{"services lists the frontends of each Service", f.flag} {
			if !strings.Contains(string(page), want) {
				t.Errorf("%s: got\n%s\nwant %q", f.format, page, want)
			}
		}
	}
}

func TestDocsErrors(t *testing.T) {
	for commandLine, want := range map[string]string{
		"docs":                       "docs needs one argument, the directory; got 0\nexit code 2",
		"docs --format html /tmp":    `--format "html" is unknown: want man or markdown` + "\nexit code 2",
		"docs /dev/null/nftproxy":    "mkdir /dev/null: not a directory\nexit code 1",
		"docs --format man one two ": "docs needs one argument, the directory; got 2\nexit code 2",
	} {
		if got, want := run(strings.Fields(commandLine)...), "nftproxy: "+want+"\n"; got != want {
			t.Errorf("%s: got %q, want %q", commandLine, got, want)
		}
	}
}
