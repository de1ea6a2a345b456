package main

import (
	"encoding/xml"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
)

// report is the results of a program.
type report struct {
	program, mode string
	results       []result
	notes         []string // known differences of random clusters
}

// count is the number of cases of a feature.
type count struct{ cases, passed, asKubeProxy int }

// failures returns the number of cases that failed and that kube-proxy passes.
func (r report) failures() (n int) {
	for _, c := range r.results {
		if !c.passed && known(r.mode, c.name) == "" {
			n++
		}
	}
	return n
}

// print prints a table of the features, the differences to kube-proxy, and the
// output of the cases that failed.
func (r report) print(out io.Writer) {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(table, "\n%s, mode %s\n\nFEATURE\tCASES\tPASSED\tFAILED AS KUBE-PROXY\tFAILED\n", r.program, r.mode)
	total := count{}
	line := func(name string, c count) {
		fmt.Fprintf(table, "%s\t%d\t%d\t%d\t%d\n", name, c.cases, c.passed, c.asKubeProxy,
			c.cases-c.passed-c.asKubeProxy)
	}
	for _, s := range suites() {
		for _, f := range s.features {
			if c := r.count(f.name); c.cases > 0 {
				line(f.name, c)
				total = count{total.cases + c.cases, total.passed + c.passed, total.asKubeProxy + c.asKubeProxy}
			}
		}
	}
	line("all", total)
	table.Flush()
	r.printDifferences(out)
	for _, c := range r.results {
		if !c.passed && known(r.mode, c.name) == "" {
			fmt.Fprintf(out, "\nFAILED %s: %s\n%s", c.feature, c.name, shortened(c.output))
		}
	}
}

func (r report) count(feature string) (n count) {
	for _, c := range r.results {
		switch {
		case c.feature != feature:
			continue
		case c.passed:
			n.passed++
		case known(r.mode, c.name) != "":
			n.asKubeProxy++
		}
		n.cases++
	}
	return n
}

// printDifferences prints the cases that kube-proxy fails.
func (r report) printDifferences(out io.Writer) {
	for _, c := range r.results {
		if reason := known(r.mode, c.name); reason != "" {
			outcome := map[bool]string{true: "differs from kube-proxy", false: "as kube-proxy"}[c.passed]
			fmt.Fprintf(out, "\n%s: %s: %s", outcome, c.name, reason)
		}
	}
	for _, note := range r.notes {
		fmt.Fprintf(out, "\ndiffers from kube-proxy: random clusters: %s", note)
	}
	fmt.Fprintln(out)
}

// shortened returns the first lines of the output of a case.
func shortened(output string) string {
	const most = 3000
	if len(output) > most {
		return output[:most] + "...\n"
	}
	return output
}

// The elements of JUnit XML.
type (
	junitSuites struct {
		XMLName xml.Name `xml:"testsuites"`
		Suites  []*junitSuite
	}
	junitSuite struct {
		XMLName  xml.Name `xml:"testsuite"`
		Name     string   `xml:"name,attr"`
		Tests    int      `xml:"tests,attr"`
		Failures int      `xml:"failures,attr"`
		Skipped  int      `xml:"skipped,attr"`
		Cases    []junitCase
	}
	junitCase struct {
		XMLName xml.Name      `xml:"testcase"`
		Class   string        `xml:"classname,attr"`
		Name    string        `xml:"name,attr"`
		Time    float64       `xml:"time,attr"`
		Failure *junitMessage `xml:"failure"`
		Skipped *junitMessage `xml:"skipped"`
	}
	junitMessage struct {
		Message string `xml:"message,attr"`
		Text    string `xml:",chardata"`
	}
)

// writeJUnit writes the results to a file. A case that failed as kube-proxy does
// is skipped.
func (r report) writeJUnit(path string) error {
	all, byName := junitSuites{}, map[string]*junitSuite{}
	for _, c := range r.results {
		s := byName[c.feature]
		if s == nil {
			s = &junitSuite{Name: c.feature}
			byName[c.feature], all.Suites = s, append(all.Suites, s)
		}
		item := junitCase{Class: c.feature, Name: c.name, Time: c.seconds}
		text := strings.ToValidUTF8(c.output, "?")
		switch reason := known(r.mode, c.name); {
		case c.passed:
		case reason != "":
			item.Skipped = &junitMessage{"as kube-proxy: " + reason, text}
			s.Skipped++
		default:
			item.Failure = &junitMessage{"failed", text}
			s.Failures++
		}
		s.Tests++
		s.Cases = append(s.Cases, item)
	}
	text, err := xml.MarshalIndent(all, "", "\t")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append([]byte(xml.Header), append(text, '\n')...), 0o644)
}
