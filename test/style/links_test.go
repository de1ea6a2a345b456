package style

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	relativeLink = regexp.MustCompile(`\]\(([^)\s:]*)\)`) // without a scheme
	makeTarget   = regexp.MustCompile("(?m)(?:^    (?:.* && )?|`)make ([a-z][a-z0-9-]*)")
	notInAnchor  = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
)

// Relative links in Markdown lead to files and headings that exist, and
// commands name targets of the Makefile.
func TestLinks(t *testing.T) {
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	eachFile(t, ".md", func(path string, lines []string) {
		text := strings.Join(lines, "\n")
		for _, match := range relativeLink.FindAllStringSubmatch(text, -1) {
			file, anchor, _ := strings.Cut(match[1], "#")
			target := path
			if file != "" {
				target = filepath.Join(filepath.Dir(path), file)
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s: the link %s leads to no file", path, match[1])
			} else if anchor != "" && !hasHeading(t, target, anchor) {
				t.Errorf("%s: the link %s leads to no heading", path, match[1])
			}
		}
		for _, match := range makeTarget.FindAllStringSubmatch(text, -1) {
			if !strings.Contains(string(makefile), "\n"+match[1]+":") {
				t.Errorf("%s: the Makefile has no target %s", path, match[1])
			}
		}
	})
}

// hasHeading reports whether a Markdown file has a heading with an anchor of
// GitHub.
func hasHeading(t *testing.T, path, anchor string) bool {
	t.Helper()
	for _, line := range linesOf(t, path) {
		heading, isHeading := strings.CutPrefix(strings.TrimLeft(line, "#"), " ")
		name := notInAnchor.ReplaceAllString(strings.ToLower(heading), "")
		if isHeading && strings.HasPrefix(line, "#") && strings.ReplaceAll(name, " ", "-") == anchor {
			return true
		}
	}
	return false
}
