package style

import (
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/nftproxy/nftproxy/test/must"
)

var update = flag.Bool("update", false, "fill the figures of pages in from the results of benchmarks")

// figureRules is the content of testdata/figures.yaml.
type figureRules struct {
	// Names are abbreviations of the first parts of figures.
	Names map[string]string
	// Pages are texts with figures, by page. A figure is the name of results,
	// the labels of a row and the name of a column, such as
	// {scale; 10000 x 10; nftproxy; cold start; p50}.
	Pages map[string][]string
	// Complete are the pages that have no other figures than these and those of
	// Results, and the texts with figures that are in neither.
	Complete map[string][]string
	// Results are patterns of the text files that have the other figures of a
	// page.
	Results map[string][]string
}

var (
	placeholder = regexp.MustCompile(`\{([^}]+)\}`)
	anyFigure   = regexp.MustCompile(`\d[\d.,]* (?:µs|ms|s|kB|MB|%)|\d[\d,]* of \d[\d,]*`)
	codeBlock   = regexp.MustCompile("(?m)^    .*$|(?s)^```.*?^```")
)

// The figures of README and BENCHMARKS are those of the results of the
// benchmarks.
func TestFigures(t *testing.T) {
	text, err := os.ReadFile("testdata/figures.yaml")
	must.NoError(t, err)
	var rules figureRules
	must.NoError(t, yaml.UnmarshalStrict(text, &rules))
	for page := range rules.Pages {
		t.Run(page, func(t *testing.T) { rules.check(t, page) })
	}
}

// check compares the figures of a page, or fills them in.
func (r *figureRules) check(t *testing.T, page string) {
	file := filepath.Join(root, page)
	old, err := os.ReadFile(file)
	must.NoError(t, err)
	filled, rest := string(old), codeBlock.ReplaceAllString(string(old), "")
	for _, text := range r.Pages[page] {
		figures := r.figures(t, text)
		filled = fill(t, filled, text, figures)
		rest = strings.ReplaceAll(rest, replaceEach(text, figures), "")
	}
	if filled != string(old) {
		if *update {
			must.NoError(t, os.WriteFile(file, []byte(filled), 0o644))
		} else {
			t.Error("the page differs from the results: make figures fills them in")
		}
		return
	}
	for _, text := range r.Complete[page] {
		rest = strings.ReplaceAll(rest, text, "")
	}
	measured := figuresOf(t, r.Results[page])
	for _, figure := range anyFigure.FindAllString(rest, -1) {
		if !measured[figure] {
			t.Errorf("%s is in no text of testdata/figures.yaml, and in no results", figure)
		}
	}
}

// figuresOf returns the figures in the files with these patterns.
func figuresOf(t *testing.T, patterns []string) map[string]bool {
	all := make(map[string]bool)
	for _, pattern := range patterns {
		files, err := filepath.Glob(filepath.Join(root, pattern))
		must.NoError(t, err)
		for _, file := range files {
			text, err := os.ReadFile(file)
			must.NoError(t, err)
			for _, figure := range anyFigure.FindAllString(string(text), -1) {
				all[figure] = true
			}
		}
	}
	return all
}

// figures returns the figures of a text.
func (r *figureRules) figures(t *testing.T, text string) (all []string) {
	for _, figure := range placeholder.FindAllStringSubmatch(text, -1) {
		name, labels, _ := strings.Cut(figure[1], "; ")
		name = cmp.Or(r.Names[name], name)
		all = append(all, figureOf(t, strings.Split(name+"; "+labels, "; ")))
	}
	return all
}

// fill returns the page with the figures in the place of those that it has
// where it has the text.
func fill(t *testing.T, content, text string, figures []string) string {
	t.Helper()
	parts := placeholder.Split(text, -1)
	for i := range parts {
		parts[i] = regexp.QuoteMeta(parts[i])
	}
	all := regexp.MustCompile(strings.Join(parts, `([^|\n]*?)`)).FindAllString(content, -1)
	if len(all) != 1 {
		t.Errorf("got %d texts like %s, want 1", len(all), text)
		return content
	}
	want := replaceEach(text, figures)
	if all[0] != want {
		t.Logf("got\n%s, want\n%s", all[0], want)
	}
	return strings.Replace(content, all[0], want, 1)
}

// replaceEach returns the text with figures in the place of its placeholders.
func replaceEach(text string, figures []string) string {
	return placeholder.ReplaceAllStringFunc(text, func(string) string {
		first := figures[0]
		figures = figures[1:]
		return first
	})
}

// results is what the files of package test/bench/report have.
type results struct {
	Tables []struct {
		Title string
		Rows  [][]struct {
			Name, Text, Unit string
			Value            float64
		}
	}
}

// figureOf returns a figure of the only row that has all labels, as text. The
// title of its table is a label, too; a number is one as name=number.
func figureOf(t *testing.T, address []string) string {
	t.Helper()
	benchmark, folder, _ := strings.Cut(address[0], "/")
	file := path.Join(root, "test/bench", benchmark, "results", folder, benchmark+".json")
	text, err := os.ReadFile(file)
	must.NoError(t, err)
	var r results
	must.NoError(t, json.Unmarshal(text, &r))
	labels, column := address[1:len(address)-1], address[len(address)-1]
	var found []string
	for _, table := range r.Tables {
		for _, row := range table.Rows {
			has, figure := []string{table.Title}, ""
			for _, f := range row {
				if f.Name == column {
					figure = textOf(f.Unit, f.Value)
				}
				has = append(has, f.Text, fmt.Sprintf("%s=%v", f.Name, f.Value))
			}
			lacks := func(label string) bool { return !slices.Contains(has, label) }
			if figure != "" && !slices.ContainsFunc(labels, lacks) {
				found = append(found, figure)
			}
		}
	}
	if len(found) != 1 {
		t.Fatalf("%s: got %d figures, want 1: %v", strings.Join(address, "; "), len(found), found)
	}
	return found[0]
}

// textOf returns a figure with one decimal, or none from 100 on: runs differ by
// more than that.
func textOf(unit string, value float64) string {
	switch unit {
	case "":
		return thousands(value)
	case "ratio":
		return fmt.Sprintf("%+.1f %%", (value-1)*100)
	}
	prefixes := map[string][]string{"s": {"s", "ms", "µs"}, "B": {"MB", "kB", "B"}, "%": {"%"}}[unit]
	if unit == "B" {
		value /= 1e6
	}
	for ; value < 1 && len(prefixes) > 1 && value != 0; prefixes = prefixes[1:] {
		value *= 1000
	}
	if value > 99.9 {
		return thousands(value) + " " + prefixes[0]
	}
	return fmt.Sprintf("%.1f %s", value, prefixes[0])
}

// thousands returns a number such as 864,493.
func thousands(value float64) string {
	text := fmt.Sprintf("%.0f", value)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}
