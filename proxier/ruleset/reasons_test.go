package ruleset

import (
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// docs/troubleshooting.md lists each code once, with its symptom, a check and a
// remedy, and no other one.
func TestCodes(t *testing.T) {
	read := func(file string) string {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	listed := make(map[string]bool)
	for line := range strings.Lines(read("../../docs/troubleshooting.md")) {
		cells := strings.Split(strings.TrimSpace(line), " | ")
		code, ok := strings.CutPrefix(cells[0], "| `")
		if !ok {
			continue
		}
		code = strings.TrimSuffix(code, "`")
		if listed[code] || len(cells) != 4 || slices.ContainsFunc(cells, func(c string) bool { return len(c) < 3 }) {
			t.Errorf("the line of %s is a second one, or has not four cells: %s", code, line)
		}
		listed[code] = true
	}
	defined := make(map[string]bool)
	constant := regexp.MustCompile(`(?m)^\t\w+ +(?:Reason|Unused) += "(\w+)"`)
	for _, found := range constant.FindAllStringSubmatch(read("reasons.go"), -1) {
		defined[found[1]] = true
	}
	if !maps.Equal(listed, defined) || len(defined) < 40 {
		t.Errorf("got codes in the documentation\n%q\nwant\n%q", slices.Sorted(maps.Keys(listed)),
			slices.Sorted(maps.Keys(defined)))
	}
}
