package style

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"
)

const (
	root         = "../.."
	maxCode      = 120 // columns; a tab has four
	maxComment   = 80
	maxFileLines = 600
)

// walk calls f for all files and folders of the repository, without hidden
// ones, test data and results.
func walk(t *testing.T, f func(path string, d fs.DirEntry)) {
	t.Helper()
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		hidden := strings.HasPrefix(d.Name(), ".") && path != root
		if d.IsDir() && (hidden || d.Name() == "testdata" || d.Name() == "results" || d.Name() == "bin") {
			return filepath.SkipDir
		}
		f(path, d)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// eachFile calls f with the lines of each file with an extension.
func eachFile(t *testing.T, extension string, f func(path string, lines []string)) {
	t.Helper()
	walk(t, func(path string, d fs.DirEntry) {
		if !d.IsDir() && filepath.Ext(path) == extension {
			f(path, linesOf(t, path))
		}
	})
}

// linesOf returns the lines of a file.
func linesOf(t *testing.T, path string) []string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
}

// preformatted matches comments that must not be wrapped: code, nft text, links
// and directives.
var preformatted = regexp.MustCompile(`^\s*//( ?\t|go:|\s*https?://|  )`)

// columns returns the width of a line.
func columns(line string) int {
	return utf8.RuneCountInString(strings.ReplaceAll(line, "\t", "    "))
}

// Go code is at most 120 columns wide, comments 80, and a file has at most 600
// lines.
func TestGoLines(t *testing.T) {
	eachFile(t, ".go", func(path string, lines []string) {
		if len(lines) > maxFileLines {
			t.Errorf("%s: %d lines, want at most %d", path, len(lines), maxFileLines)
		}
		output := false // in the expected output of an example
		for i, line := range lines {
			output = strings.HasPrefix(line, "\t// ") && (output || strings.HasPrefix(line, "\t// Output:"))
			if n := columns(line); n > maxCode && !preformatted.MatchString(line) {
				t.Errorf("%s:%d: %d columns, want at most %d", path, i+1, n, maxCode)
			}
			if output || !strings.HasPrefix(strings.TrimSpace(line), "//") || preformatted.MatchString(line) {
				continue
			}
			if n := columns(line); n > maxComment {
				t.Errorf("%s:%d: a comment has %d columns, want at most %d", path, i+1, n, maxComment)
			}
		}
	})
}

// block matches lines of Markdown that are not part of a paragraph.
var block = regexp.MustCompile(`^(\s*$|#|\||\s*[-*+] |\s*\d+\. |>|<|!\[|\[[^]]+\]: |    |\t)`)

// A paragraph of Markdown is one line.
func TestMarkdownParagraphs(t *testing.T) {
	eachFile(t, ".md", func(path string, lines []string) {
		fenced, paragraph := false, false
		for i, line := range lines {
			if strings.HasPrefix(strings.TrimSpace(line), "```") {
				fenced, paragraph = !fenced, false
				continue
			}
			text := !fenced && !block.MatchString(line)
			if text && paragraph {
				t.Errorf("%s:%d: the paragraph continues on a second line", path, i+1)
			}
			paragraph = text
		}
	})
}
