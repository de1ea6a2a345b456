package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
)

// result is the outcome of a case.
type result struct {
	feature, name string
	passed        bool
	seconds       float64
	output        string
}

// event is what `go test -json` prints.
type event struct {
	Action, Test, Output string
	Elapsed              float64
}

// run runs the tests of the suite. The notes are the known differences of
// random clusters. An error means that the tests could not run.
func (s suite) run(o options) (all []result, notes []string, err error) {
	var tests []string
	features := map[string]string{} // of tests
	for _, f := range s.features {
		if !regexp.MustCompile(o.only).MatchString(f.name) {
			continue
		}
		for _, t := range f.tests {
			name, subtests, _ := strings.Cut(t, "/")
			features[name] = f.name
			tests = append(tests, strings.TrimSuffix("^"+name+"$/"+subtests, "/"))
		}
	}
	if len(tests) == 0 {
		return nil, nil, nil
	}
	args := []string{
		"test", "-json", "-count=1", "-timeout=2h", fmt.Sprint("-parallel=", o.parallel),
		"-run=" + strings.Join(tests, "|"), s.pkg,
	}
	if s.random {
		args = append(args, fmt.Sprint("-seeds=", o.seeds))
	}
	command := exec.Command("go", args...)
	command.Dir, command.Stderr = s.dir, os.Stderr
	command.Env = append(os.Environ(), "SUBJECT="+o.proxy, "SUBJECT_MODE="+o.mode, "SUBJECT_ARGS="+o.args)
	out, err := command.Output()
	if all, notes = results(out, features); len(all) == 0 {
		return nil, nil, fmt.Errorf("%s: no test ran: %w:\n%s", s.pkg, err, out)
	}
	return all, notes, nil
}

// knownDifference matches what the comparison of random clusters logs.
var knownDifference = regexp.MustCompile(`^ *(\d+) known difference: (.*)`)

// results returns the results of the tests without subtests, and those of
// others that fail although all of their subtests pass.
func results(events []byte, features map[string]string) (all []result, notes []string) {
	parents, failed, outputs := map[string]bool{}, map[string]bool{}, map[string]string{}
	for line := range bytes.Lines(events) {
		var e event
		if json.Unmarshal(line, &e) != nil || e.Test == "" {
			continue // of the build or of the package
		}
		outputs[e.Test] += e.Output
		if m := knownDifference.FindStringSubmatch(e.Output); m != nil {
			notes = append(notes, m[1]+" probes: "+m[2])
		}
		parent := e.Test[:max(0, strings.LastIndex(e.Test, "/"))]
		parents[parent] = true
		// Subtests end before their parents.
		passed := e.Action == "pass"
		if !passed && e.Action != "fail" {
			continue
		}
		failed[parent] = failed[parent] || !passed
		if !parents[e.Test] || !passed && !failed[e.Test] {
			top, _, _ := strings.Cut(e.Test, "/")
			all = append(all, result{features[top], e.Test, passed, e.Elapsed, outputs[e.Test]})
		}
	}
	slices.SortStableFunc(all, func(a, b result) int { return strings.Compare(a.name, b.name) })
	return all, notes
}
