package main

import (
	"encoding/xml"
	"fmt"
	"io"
	"os"
	"strings"
)

// report is the results of a program.
type report struct {
	program, mode string
	results       []result
	notes         []string // differences of random clusters that are not judged
}

// outcome is the outcome of a case.
type outcome int

const (
	passed      outcome = iota
	asKubeProxy         // failed, as kube-proxy does
	failed
)

// outcomeOf returns the outcome of a case, and why kube-proxy fails it, "" if
// it does not.
func (r report) outcomeOf(c result) (o outcome, reason string) {
	reason = known(r.mode, c.name)
	switch {
	case c.passed:
		return passed, reason
	case reason != "" && !c.unfinished:
		return asKubeProxy, reason
	}
	return failed, ""
}

// counts returns the numbers of cases of a feature by outcome; "" means all
// features.
func (r report) counts(feature string) (n [3]int) {
	for _, c := range r.results {
		if o, _ := r.outcomeOf(c); feature == "" || c.feature == feature {
			n[o]++
		}
	}
	return n
}

// print prints a table of the features in Markdown, the differences to
// kube-proxy, and the output of the cases that failed.
func (r report) print(out io.Writer) {
	fmt.Fprintf(out, "\n%s, mode %s\n\n", r.program, r.mode)
	fmt.Fprint(out, "| feature | cases | passed | failed as kube-proxy | failed |\n| --- | --- | --- | --- | --- |\n")
	line := func(name string, n [3]int) {
		if cases := n[passed] + n[asKubeProxy] + n[failed]; cases > 0 {
			fmt.Fprintf(out, "| %s | %d | %d | %d | %d |\n", name, cases, n[passed], n[asKubeProxy], n[failed])
		}
	}
	for _, s := range suites() {
		for _, f := range s.Features {
			line(f.Name, r.counts(f.Name))
		}
	}
	line("all", r.counts(""))
	fmt.Fprintln(out)
	for _, c := range r.results {
		switch o, reason := r.outcomeOf(c); {
		case o == passed && reason != "":
			fmt.Fprintf(out, "kube-proxy fails it: %s: %s\n", c.name, reason)
		case o == asKubeProxy:
			fmt.Fprintf(out, "kube-proxy fails it too: %s: %s\n", c.name, reason)
		}
	}
	for _, note := range r.notes {
		fmt.Fprintf(out, "differs from kube-proxy, not judged: random clusters: %s\n", note)
	}
	for _, c := range r.results {
		if o, _ := r.outcomeOf(c); o == failed {
			fmt.Fprintf(out, "\nFAILED %s: %s: %s\n%s", c.feature, c.name, c.message(), c.output)
		}
	}
}

// The elements of JUnit XML.
type (
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

// writeJUnit writes the results to a file. A case that failed as kube-proxy
// does is skipped.
func (r report) writeJUnit(path string) error {
	var all struct {
		XMLName xml.Name `xml:"testsuites"`
		Suites  []*junitSuite
	}
	byName := map[string]*junitSuite{}
	for _, c := range r.results {
		s := byName[c.feature]
		if s == nil {
			n := r.counts(c.feature)
			s = &junitSuite{
				Name: c.feature, Tests: n[passed] + n[asKubeProxy] + n[failed],
				Failures: n[failed], Skipped: n[asKubeProxy],
			}
			byName[c.feature], all.Suites = s, append(all.Suites, s)
		}
		item := junitCase{Class: c.feature, Name: c.name, Time: c.seconds}
		text := strings.ToValidUTF8(c.output, "?")
		switch o, reason := r.outcomeOf(c); o {
		case asKubeProxy:
			item.Skipped = &junitMessage{"as kube-proxy: " + reason, text}
		case failed:
			item.Failure = &junitMessage{c.message(), text}
		}
		s.Cases = append(s.Cases, item)
	}
	text, err := xml.MarshalIndent(all, "", "\t")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append([]byte(xml.Header), append(text, '\n')...), 0o644)
}
