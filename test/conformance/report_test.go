package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// events are what `go test -json` prints for one test that passes in part, one
// that fails although its subtest passes, and random clusters.
const events = `
{"Action":"start"}
{"Action":"output","Test":"TestScripts/addresses/proxied","Output":"fine\n"}
{"Action":"pass","Test":"TestScripts/addresses/proxied"}
{"Action":"output","Test":"TestScripts/addresses/single","Output":"no answer\n"}
{"Action":"fail","Test":"TestScripts/addresses/single"}
{"Action":"output","Test":"TestScripts/addresses","Output":"    proxy_test.go:37: log of kube-proxy on node1\n"}
{"Action":"fail","Test":"TestScripts/addresses"}
{"Action":"pass","Test":"TestScripts/hairpin/served"}
{"Action":"output","Test":"TestScripts/hairpin","Output":"    hairpin_test.go:7: 3 checks\n"}
{"Action":"output","Test":"TestScripts/hairpin","Output":"    hairpin_test.go:9: \u003cno answer\u003e\n"}
{"Action":"fail","Test":"TestScripts/hairpin"}
{"Action":"output","Test":"TestDifferential","Output":"     12 not judged: a reason\n"}
{"Action":"pass","Test":"TestDifferential","Elapsed":2}
{"Action":"fail"}`

// TestReport shows the table and the JUnit XML of results, with a case that
// kube-proxy fails too.
func TestReport(t *testing.T) {
	features := map[string]string{"TestScripts/addresses": "UDP flows", "TestScripts/hairpin": "hairpin"}
	cases, notes, _ := results(strings.NewReader(events), features)
	if got := names(cases); got != "TestDifferential TestScripts/addresses/proxied "+
		"TestScripts/addresses/single TestScripts/hairpin TestScripts/hairpin/served" {
		t.Errorf("cases: got %s", got)
	}
	r := report{program: "/proxy", mode: "iptables", results: cases, notes: notes}
	if n := r.counts(""); n != [3]int{3, 1, 1} {
		t.Errorf("got %v cases by outcome", n)
	}
	var out strings.Builder
	r.print(&out)
	path := filepath.Join(t.TempDir(), "junit.xml")
	if err := r.writeJUnit(path); err != nil {
		t.Fatal(err)
	}
	xml, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for text, wants := range map[string][]string{
		out.String(): {
			"| UDP flows | 2 | 1 | 1 | 0 |", "| hairpin | 2 | 1 | 0 | 1 |", "random clusters: 12 probes: a reason",
			"kube-proxy fails it too: TestScripts/addresses/single: ",
			"FAILED hairpin: TestScripts/hairpin: <no answer>\n",
		},
		string(xml): {
			`<testsuite name="UDP flows" tests="2" failures="0" skipped="1">`,
			`<testcase classname="hairpin" name="TestScripts/hairpin" time="0">`,
			`<failure message="&lt;no answer&gt;">`,
		},
	} {
		for _, want := range wants {
			if !strings.Contains(text, want) {
				t.Errorf("got no %q in\n%s", want, text)
			}
		}
	}
}

func names(cases []result) string {
	var all []string
	for _, r := range cases {
		all = append(all, r.name)
	}
	return strings.Join(all, " ")
}

// TestFailures shows failures that no failed subtest explains.
func TestFailures(t *testing.T) {
	const excused = `{"Action":"fail","Test":"TestScripts/addresses/single"}`
	for _, test := range []struct{ name, events, failed, message string }{
		{"nothing ran", "", "TestScripts/addresses", "did not run"},
		{"as kube-proxy", excused + `
			{"Action":"fail","Test":"TestScripts/addresses"}`, "", ""},
		{"and the program crashed", excused + `
			{"Action":"output","Test":"TestScripts/addresses","Output":"    udp_test.go:9: it ended\n"}
			{"Action":"fail","Test":"TestScripts/addresses"}`, "TestScripts/addresses", "it ended"},
		{"panic in a case that kube-proxy fails", `
			{"Action":"run","Test":"TestScripts/addresses/single"}
			{"Action":"output","Test":"TestScripts/addresses/single","Output":"=== RUN\n"}
			{"Action":"output","Test":"TestScripts/addresses","Output":"panic: at once\n"}
			{"Action":"fail","Test":"TestScripts/addresses"}`,
			"TestScripts/addresses TestScripts/addresses/single", "at once"},
		{"time limit", excused + `
			{"Action":"output","Test":"TestScripts/addresses","Output":"=== RUN\n"}`,
			"TestScripts/addresses", "did not end"},
		{"skipped", `{"Action":"skip","Test":"TestScripts/addresses"}`, "TestScripts/addresses", "did not run"},
	} {
		t.Run(test.name, func(t *testing.T) {
			// One event is a line.
			lines := strings.ReplaceAll(test.events, "\t", "") + "\n"
			r := report{mode: "iptables"}
			r.results, _, _ = results(strings.NewReader(lines), map[string]string{"TestScripts/addresses": "UDP flows"})
			failures := slices.DeleteFunc(r.results, func(c result) bool {
				o, _ := r.outcomeOf(c)
				return o != failed
			})
			if got := names(failures); got != test.failed {
				t.Errorf("got failures %q, want %q", got, test.failed)
			}
			if len(failures) > 0 && failures[0].message() != test.message {
				t.Errorf("got message %q, want %q", failures[0].message(), test.message)
			}
		})
	}
}

// TestSelected shows the selection of tests by their name and by their feature.
func TestSelected(t *testing.T) {
	for only, want := range map[string]string{
		"SCTP|masquerade-": "^TestScripts$/^sctp$ ^TestScripts$/^masquerade-all$",
		"equal shares":     "^TestScripts$/^distribution$",
		"healthz":          "^TestContract$/(answers|leaving)/^(leaving-)?(healthz|livez)$",
		"no such things":   "",
	} {
		var all []string
		for _, s := range suites() {
			_, patterns := s.selected(regexp.MustCompile(only))
			all = append(all, patterns...)
		}
		if got := strings.Join(all, " "); got != want {
			t.Errorf("%s: got %s, want %s", only, got, want)
		}
	}
}

// TestFeatures shows that each test belongs to one feature, and that the
// regular expressions of references are valid.
func TestFeatures(t *testing.T) {
	seen := map[string]bool{}
	for _, s := range suites() {
		for _, f := range s.Features {
			for _, name := range f.Tests {
				if seen[name] {
					t.Errorf("%s belongs to two features", name)
				}
				seen[name] = true
			}
		}
	}
	for _, r := range references() {
		for _, mode := range r.Modes {
			if known(mode, "") != "" {
				t.Errorf("%s matches an empty name", r.Cases)
			}
		}
	}
}
