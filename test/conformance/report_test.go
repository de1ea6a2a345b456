package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// events are what `go test -json` prints for one test that passes in part, one
// that fails although its subtest passes, and random clusters.
const events = `
{"Action":"start"}
{"Action":"output","Test":"TestUDPFlows/stay","Output":"fine\n"}
{"Action":"pass","Test":"TestUDPFlows/stay"}
{"Action":"output","Test":"TestUDPFlows/none_left","Output":"no answer\n"}
{"Action":"fail","Test":"TestUDPFlows/none_left"}
{"Action":"fail","Test":"TestUDPFlows"}
{"Action":"pass","Test":"TestSCTP/served"}
{"Action":"fail","Test":"TestSCTP"}
{"Action":"output","Test":"TestDifferential","Output":"     12 known difference: a reason\n"}
{"Action":"pass","Test":"TestDifferential","Elapsed":2}
{"Action":"fail"}`

// TestReport shows the table and the JUnit XML of results, with a case that
// kube-proxy fails too.
func TestReport(t *testing.T) {
	features := map[string]string{"TestUDPFlows": "UDP flows", "TestSCTP": "SCTP"}
	cases, notes, _ := results(strings.NewReader(events), features)
	var names []string
	for _, r := range cases {
		names = append(names, r.name)
	}
	if got := strings.Join(names, " "); got != "TestDifferential TestSCTP TestSCTP/served "+
		"TestUDPFlows/none_left TestUDPFlows/stay" {
		t.Errorf("cases: got %s", got)
	}
	r := report{program: "/proxy", mode: "nftables", results: cases, notes: notes}
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
			"| UDP flows | 2 | 1 | 1 | 0 |", "| SCTP | 2 | 1 | 0 | 1 |", "random clusters: 12 probes: a reason",
			"kube-proxy fails it too: TestUDPFlows/none_left: ", "FAILED SCTP: TestSCTP\n",
		},
		string(xml): {
			`<testsuite name="UDP flows" tests="2" failures="0" skipped="1">`,
			`<testcase classname="SCTP" name="TestSCTP" time="0">`, `<failure message="failed">`,
		},
	} {
		for _, want := range wants {
			if !strings.Contains(text, want) {
				t.Errorf("got no %q in\n%s", want, text)
			}
		}
	}
}

// TestFeatures shows that each test belongs to one feature, and that the
// regular expressions of references are valid.
func TestFeatures(t *testing.T) {
	seen := map[string]bool{}
	for _, s := range suites() {
		for _, f := range s.features {
			for _, name := range f.tests {
				if seen[name] {
					t.Errorf("%s belongs to two features", name)
				}
				seen[name] = true
			}
		}
	}
	for _, r := range references() {
		if known(r.modes, "") != "" {
			t.Errorf("%s matches an empty name", r.cases)
		}
	}
}
