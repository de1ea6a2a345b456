package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
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
	seconds       float64
	output        string
}

// event is what `go test -json` prints.
type event struct {
	Action, Test, Output string
	Elapsed              float64
}

// run runs the tests of the suite. The notes are the known differences of
// random clusters. If ctx ends, run returns the results of the tests that have
// ended. An error means that the tests could not run.
func (s suite) run(ctx context.Context, o options) (all []result, notes []string, err error) {
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
	command := exec.CommandContext(ctx, "go", args...)
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	command.Cancel = func() error { return syscall.Kill(-command.Process.Pid, syscall.SIGINT) }
	command.Dir, command.Stderr = s.dir, os.Stderr
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
	if len(all) == 0 && ctx.Err() == nil {
		return nil, nil, fmt.Errorf("%s: no test ran: %w:\n%s", s.pkg, err, other)
	}
	return all, notes, nil
}

// knownDifference matches what the comparison of random clusters logs.
var knownDifference = regexp.MustCompile(`^ *(\d+) known difference: (.*)`)

// results reads what `go test -json` prints. It returns the results of the
// tests without subtests, and those of others that fail although all of their
// subtests pass, and the output that belongs to no test. It logs the tests that
// end.
func results(events io.Reader, features map[string]string) (all []result, notes []string, other string) {
	parents, failed, outputs := map[string]bool{}, map[string]bool{}, map[string]string{}
	lines := bufio.NewReader(events)
	for line, err := lines.ReadBytes('\n'); err == nil; line, err = lines.ReadBytes('\n') {
		var e event
		if json.Unmarshal(line, &e) != nil || e.Test == "" { // of the build or of the package
			other += string(line)
			continue
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
		if parent == "" {
			fmt.Fprintf(os.Stderr, "%s: %s %sed after %.0f s\n", features[e.Test], e.Test, e.Action, e.Elapsed)
		}
		failed[parent] = failed[parent] || !passed
		if !parents[e.Test] || !passed && !failed[e.Test] {
			top, _, _ := strings.Cut(e.Test, "/")
			all = append(all, result{features[top], e.Test, passed, e.Elapsed, outputs[e.Test]})
		}
	}
	slices.SortStableFunc(all, func(a, b result) int { return strings.Compare(a.name, b.name) })
	return all, notes, other
}
