package apiserver

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// describeMetrics returns a line "NAME TYPE LABELS" for each metric of a text
// in the Prometheus format.
func describeMetrics(t *testing.T, text string) (lines []string) {
	t.Helper()
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	for name, family := range families {
		labels := map[string]bool{}
		for _, m := range family.Metric {
			for _, l := range m.Label {
				labels[l.GetName()] = true
			}
			if m.Histogram != nil {
				labels["le"] = true
			} else if m.Summary != nil {
				labels["quantile"] = true
			}
		}
		kind := strings.ToLower(family.Type.String())
		lines = append(lines, strings.TrimSpace(name+" "+kind+" "+strings.Join(slices.Sorted(maps.Keys(labels)), ",")))
	}
	slices.Sort(lines)
	return lines
}

// help returns the output of --help.
func (w *world) help(name string) string {
	w.t.Helper()
	return w.run(w.Node1.Namespace, program(name), "--help")
}

// describeFlags returns a line "NAME TYPE DEFAULT" for each flag of a help
// text.
func describeFlags(help string) []string {
	flag := regexp.MustCompile(`^ +(?:-\w, )?--([\w-]+)(\[=\S+\])?(?: (\S+))?(?:   *|$)(.*)`)
	value := regexp.MustCompile(`\(default (.*?)\)(?: \(DEPRECATED|\.? |\.?$)`)
	var out []string
	for _, text := range joinFlags(help) {
		match := flag.FindStringSubmatch(text)
		if match == nil {
			continue
		}
		described := match[1] + match[2] + " " + match[3]
		if found := value.FindStringSubmatch(match[4]); found != nil {
			described += " " + found[1]
		}
		out = append(out, strings.TrimSpace(described))
	}
	slices.Sort(out)
	return out
}

// joinFlags returns one line for each flag of a help text.
func joinFlags(help string) []string {
	var out []string
	begin := regexp.MustCompile(`^ +(-\w, )?--`)
	for line := range strings.Lines(help) {
		line = strings.TrimRight(line, "\n")
		switch {
		case begin.MatchString(line):
			out = append(out, line)
		case len(out) > 0 && strings.HasPrefix(line, " "):
			out[len(out)-1] += " " + strings.TrimSpace(line)
		}
	}
	return out
}

// compareFlags checks for all recorded flags with their defaults. The product
// has other names for types: only the presence of a value is compared.
func compareFlags(t *testing.T, got []string) {
	t.Helper()
	if *record || subjectName() == upstream {
		compare(t, "flags.txt", got, all)
		return
	}
	valued := func(line string) string {
		name, rest, _ := strings.Cut(line, " ")
		kind, value, _ := strings.Cut(rest, " ")
		return fmt.Sprintf("%s value=%t default=%s", name, kind != "", strings.TrimSpace(value))
	}
	var have []string
	for _, line := range got {
		have = append(have, valued(line))
	}
	for line := range strings.Lines(expected(t, "flags.txt", "")) {
		want := valued(strings.TrimSpace(line))
		if name, _, _ := strings.Cut(want, " "); slices.Contains(otherDefaults(), name) {
			want, _, _ = strings.Cut(want, " default=")
		}
		if !slices.ContainsFunc(have,
			func(line string) bool { return line == want || strings.HasPrefix(line, want+" ") }) {
			t.Errorf("missing: %s", want)
		}
	}
}

// describeFlagPage returns a line "NAME VALUE" for each flag of /flagz.
func describeFlagPage(page string) []string {
	var out []string
	for line := range strings.Lines(page) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok {
			out = append(out, strings.TrimSpace(name+" "+value))
		}
	}
	return out
}

// unlessSet reports whether a flag must have the recorded value: the proxy is
// run without it, and the default does not differ on purpose.
func (p *proxy) unlessSet(line string) bool {
	name, _, _ := strings.Cut(line, " ")
	if slices.Contains(otherDefaults(), name) {
		return false
	}
	return !slices.ContainsFunc(p.flags, func(flag string) bool {
		return strings.HasPrefix(strings.TrimLeft(flag, "-"), name)
	})
}

// flagLines returns the proxy's log of its flags and values.
func (w *world) flagLines(name string) string {
	w.t.Helper()
	file := filepath.Join(w.t.TempDir(), "config")
	cmd := w.Node1.Command(context.Background(), program(name), "-v=1", "--write-config-to="+file)
	out, err := cmd.CombinedOutput()
	if err != nil {
		w.t.Fatalf("%v\n%s", err, out)
	}
	return string(out)
}

// describeFlagLines returns a line "NAME VALUE" for each flag, also for
// hidden ones.
func describeFlagLines(log string) []string {
	var out []string
	for _, match := range regexp.MustCompile(`FLAG: --([\w-]+)="(.*)"`).FindAllStringSubmatch(log, -1) {
		if match[1] != "write-config-to" {
			out = append(out, strings.TrimSpace(match[1]+" "+match[2]))
		}
	}
	slices.Sort(out)
	return out
}

// defaults returns the configuration that the proxy writes with the mode
// only.
func (w *world) defaults(name string) string {
	w.t.Helper()
	path := filepath.Join(w.t.TempDir(), "config")
	w.run(w.Node1.Namespace, program(name), "--proxy-mode=nftables", "--write-config-to="+path)
	text, err := os.ReadFile(path)
	w.must(err)
	return string(text)
}
