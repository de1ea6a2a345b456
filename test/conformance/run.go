package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"syscall"
)

// result is the outcome of a case.
type result struct {
	feature, name string
	passed        bool
	unfinished    bool // it did not run, or did not end
	seconds       float64
	output        string
}

// event is what `go test -json` prints.
type event struct {
	Action, Test, Output string
	Elapsed              float64
}

// selected returns the features of the selected tests, and their patterns. A
// test is selected by its name or by its feature.
func (s suite) selected(only *regexp.Regexp) (features map[string]string, patterns []string) {
	features = map[string]string{}
	for _, f := range s.Features {
		for _, t := range f.Tests {
			if only.MatchString(f.Name) || only.MatchString(t) {
				features[named(t)] = f.Name
				patterns = append(patterns, patternOf(t))
			}
		}
	}
	return features, patterns
}

// named returns the name of a test in the list, or of its parent if the list
// has a pattern of subtests.
func named(test string) string {
	for !plain.MatchString(test) {
		test = test[:strings.LastIndex(test, "/")]
	}
	return test
}

// plain matches names of tests.
var plain = regexp.MustCompile(`^[\w/-]+$`)

// patternOf returns the argument of -run for a test in the list.
func patternOf(test string) string {
	name := named(test)
	return "^" + strings.ReplaceAll(name, "/", "$/^") + "$" + strings.TrimPrefix(test, name)
}

// run runs the selected tests of the suite. The notes are differences of random
// clusters that are not judged. If ctx ends, run returns the results of the
// tests that have ended. An error means that the tests could not run, or that
// they failed for a reason that no result has.
func (s suite) run(ctx context.Context, o options) (all []result, notes []string, err error) {
	features, patterns := s.selected(o.only)
	if len(patterns) == 0 {
		return nil, nil, nil
	}
	args := []string{
		"test", "-json", "-count=1", "-timeout=2h", fmt.Sprint("-parallel=", o.parallel),
		"-run=" + strings.Join(patterns, "|"), s.Package,
	}
	if s.Random {
		args = append(args, fmt.Sprint("-seeds=", o.seeds))
	}
	command := exec.CommandContext(ctx, "go", args...)
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	command.Cancel = func() error { return syscall.Kill(-command.Process.Pid, syscall.SIGINT) }
	command.Dir, command.Stderr = s.Dir, os.Stderr
	command.Env = append(os.Environ(), "SUBJECT="+o.proxy, "SUBJECT_MODE="+o.mode, "SUBJECT_ARGS="+o.args)
	out, err := command.StdoutPipe()
	if err != nil {
		return nil, nil, err
	}
	if err := command.Start(); err != nil {
		return nil, nil, err
	}
	all, notes, other := results(out, features)
	err = command.Wait() // it also fails if a test fails
	if ctx.Err() != nil {
		return slices.DeleteFunc(all, func(r result) bool { return r.unfinished }), notes, nil
	}
	if err != nil && !slices.ContainsFunc(all, func(r result) bool { return !r.passed && r.output != "" }) {
		return all, notes, fmt.Errorf("%s: %w:\n%s", s.Package, err, other)
	}
	return all, notes, nil
}

var (
	// notJudged matches what the comparison of random clusters logs.
	notJudged = regexp.MustCompile(`^ *(\d+) not judged: (.*)`)
	// logged matches lines that a test logs, with its texts.
	logged = regexp.MustCompile(`(?m)^(?: {4,8}\w+\.go:\d+: |panic: | +FAIL: \S+: )(.*)`)
	// noError matches the texts that are not errors.
	noError = regexp.MustCompile(`^([#>] |WORK=|run this script|\d+ (checks|attempts of|seeds,)|(log|rules) of |` +
		`seed \d+(, step \d+: \d+ probes,|$))`)
)

// firstError returns the first error in the output of a test, "" if it has
// none.
func firstError(output string) string {
	for _, line := range logged.FindAllStringSubmatch(output, -1) {
		if !noError.MatchString(line[1]) {
			return line[1]
		}
	}
	return ""
}

// message returns the cause of a failure in one line.
func (r result) message() string {
	switch {
	case r.output == "":
		return "did not run"
	case r.unfinished:
		return "did not end"
	}
	return cmp.Or(firstError(r.output), "failed")
}

// record is the events of a test.
type record struct {
	ended  event // the zero event while it runs
	output string
	parent bool // it has subtests
	failed bool // one of them did not pass
}

// results reads what `go test -json` prints. It returns the results of the
// tests without subtests, and of others that fail for another reason than a
// subtest, and the output that belongs to no test. It logs the tests that end.
// A test that does not end, or that features has and does not run, failed.
func results(events io.Reader, features map[string]string) (all []result, notes []string, other string) {
	tests := map[string]*record{}
	for name := range features {
		tests[name] = &record{}
	}
	lines := bufio.NewReader(events)
	for line, err := lines.ReadBytes('\n'); err == nil; line, err = lines.ReadBytes('\n') {
		var e event
		if json.Unmarshal(line, &e) != nil || e.Test == "" { // of the build or of the package
			other += string(line)
			continue
		}
		if tests[e.Test] == nil {
			tests[e.Test] = &record{}
		}
		t := tests[e.Test]
		t.output += e.Output
		if m := notJudged.FindStringSubmatch(e.Output); m != nil {
			notes = append(notes, m[1]+" probes: "+m[2])
		}
		if e.Action == "pass" || e.Action == "fail" {
			t.ended = e
			if feature := features[e.Test]; feature != "" {
				fmt.Fprintf(os.Stderr, "%s: %s: %s after %.0f s\n", feature, e.Test, e.Action, e.Elapsed)
			}
		}
	}
	return outcomes(tests, features), notes, other
}

// outcomes returns the results of tests, sorted by name.
func outcomes(tests map[string]*record, features map[string]string) (all []result) {
	for name, t := range tests {
		if parent := tests[name[:max(0, strings.LastIndex(name, "/"))]]; parent != nil {
			parent.parent, parent.failed = true, parent.failed || t.ended.Action != "pass"
		}
	}
	for _, name := range slices.Sorted(maps.Keys(tests)) {
		t := tests[name]
		r := result{
			feature: featureOf(name, features), name: name, output: t.output, seconds: t.ended.Elapsed,
			passed: t.ended.Action == "pass", unfinished: t.ended.Action == "",
		}
		if !t.parent || !r.passed && (!t.failed || r.unfinished || firstError(r.output) != "") {
			all = append(all, r)
		}
	}
	return all
}

// featureOf returns the feature of a test: its own, or the one of a parent.
func featureOf(test string, features map[string]string) string {
	for features[test] == "" && strings.Contains(test, "/") {
		test = test[:strings.LastIndex(test, "/")]
	}
	return features[test]
}
