package main

import (
	"encoding/xml"
	"os"
	"strings"
)

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
