// Command mutants breaks the product on purpose, and reports which tests notice
// it. mutants.yaml has the list of faults. No file is changed: go test gets the
// broken file as an overlay.
//
// Libraries such as go-mutesting, gremlins and selene do not fit: they make
// thousands of faults out of the syntax, and cannot take a list of faults that
// a programmer of this product could make.
package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/yaml"
)

// list is the content of mutants.yaml.
type list struct {
	// Also are the packages whose tests run after the tests of a folder, until
	// one notices the mutant.
	Also    map[string][]string `json:"also"`
	Mutants []mutant            `json:"mutants"`
}

// mutant is a fault: a text that replaces another one, which occurs once in its
// file.
type mutant struct {
	Name   string   `json:"name"`
	Breaks string   `json:"breaks"` // a sentence about the broken product
	File   string   `json:"file"`
	Old    string   `json:"old"`
	New    string   `json:"new"`
	Tests  []string `json:"tests"` // packages, instead of the usual ones
}

var (
	only    = flag.String("run", "", "regular expression: run only the mutants whose name or file matches")
	timeout = flag.Duration("timeout", 5*time.Minute, "time limit of the tests of a package")
)

func main() {
	flag.Parse()
	missed, err := run()
	if err == nil && missed > 0 {
		err = fmt.Errorf("no test noticed %d mutants", missed)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

func run() (missed int, err error) {
	root, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		return 0, fmt.Errorf("find the module: %w", err)
	}
	dir := strings.TrimSpace(string(root))
	l, err := readList(dir)
	if err != nil {
		return 0, err
	}
	pattern, err := regexp.Compile(*only)
	if err != nil {
		return 0, err
	}
	for _, m := range l.Mutants {
		if !pattern.MatchString(m.Name) && !pattern.MatchString(m.File) {
			continue
		}
		noticed, err := m.test(dir, l.packages(&m))
		if err != nil {
			return missed, fmt.Errorf("mutant %s: %w", m.Name, err)
		}
		if !noticed {
			missed++
		}
	}
	return missed, nil
}

func readList(dir string) (l list, err error) {
	text, err := os.ReadFile(filepath.Join(dir, "test/mutants/mutants.yaml"))
	if err == nil {
		err = yaml.UnmarshalStrict(text, &l)
	}
	return l, err
}

// packages returns the packages whose tests should notice a mutant.
func (l *list) packages(m *mutant) []string {
	if m.Tests != nil {
		return m.Tests
	}
	folder := filepath.Dir(m.File)
	return append([]string{"./" + folder}, l.Also[folder]...)
}

// apply returns the content of the file with the fault.
func (m *mutant) apply(dir string) ([]byte, error) {
	text, err := os.ReadFile(filepath.Join(dir, m.File))
	if err != nil {
		return nil, err
	}
	if n := bytes.Count(text, []byte(m.Old)); n != 1 {
		return nil, fmt.Errorf("%s has the old text %d times, not once", m.File, n)
	}
	return bytes.Replace(text, []byte(m.Old), []byte(m.New), 1), nil
}

// test runs the tests of packages with the mutant, and prints a line for each
// package.
func (m *mutant) test(dir string, packages []string) (noticed bool, err error) {
	text, err := m.apply(dir)
	if err != nil {
		return false, err
	}
	temp, err := os.MkdirTemp("", "mutant")
	if err != nil {
		return false, err
	}
	defer os.RemoveAll(temp)
	overlay, broken := filepath.Join(temp, "overlay.json"), filepath.Join(temp, filepath.Base(m.File))
	replace, err := json.Marshal(map[string]any{"Replace": map[string]string{filepath.Join(dir, m.File): broken}})
	err = errors.Join(err, os.WriteFile(broken, text, 0o600), os.WriteFile(overlay, replace, 0o600))
	if err != nil {
		return false, err
	}
	for _, pkg := range packages {
		if err := passes(dir, pkg); err != nil {
			return false, err
		}
		start := time.Now()
		by, err := failures(dir, overlay, pkg)
		if err != nil {
			return false, err
		}
		fmt.Printf("%-28s %-36s %5.1f s  %s\n", m.Name, pkg, time.Since(start).Seconds(), cmp.Or(by, "not noticed"))
		if by != "" {
			return true, nil
		}
	}
	fmt.Printf("%-28s MISSED: %s\n", m.Name, m.Breaks)
	return false, nil
}

var passed = make(map[string]bool) // packages whose tests pass without a mutant

// passes returns an error if the tests of a package fail without a mutant.
func passes(dir, pkg string) error {
	if passed[pkg] {
		return nil
	}
	passed[pkg] = true
	by, err := failures(dir, "", pkg)
	if by != "" {
		err = fmt.Errorf("the tests of %s fail without a mutant: %s", pkg, by)
	}
	return err
}

var failedTest = regexp.MustCompile(`(?m)^ *--- FAIL: (\S+)|^(panic: .*|\t\t\S+ \(.*\)$)`)

// failures returns the first tests of a package that fail, "" if all pass.
func failures(dir, overlay, pkg string) (string, error) {
	cmd := exec.Command("go", "test", "-count=1", "-failfast", "-vet=off", fmt.Sprint("-timeout=", *timeout), pkg)
	cmd.Dir = dir
	if overlay != "" { // the tests that start the command build it with the fault, too
		cmd.Env = append(os.Environ(), "GOFLAGS=-overlay="+overlay)
	}
	out, err := cmd.CombinedOutput()
	switch {
	case err == nil:
		return "", nil
	case !errors.As(err, new(*exec.ExitError)):
		return "", err
	case bytes.Contains(out, []byte("[build failed]")), bytes.Contains(out, []byte("[setup failed]")):
		return "", fmt.Errorf("the mutant does not compile:\n%s", out)
	}
	var failed []string
	for _, found := range failedTest.FindAllStringSubmatch(string(out), -1) {
		failed = append(failed, strings.TrimSpace(cmp.Or(found[1], found[2])))
	}
	failed = slices.DeleteFunc(failed, func(name string) bool { // a test with subtests
		return slices.ContainsFunc(failed, func(sub string) bool { return strings.HasPrefix(sub, name+"/") })
	})
	if more := len(failed) - 3; more > 0 {
		failed = append(failed[:3:3], fmt.Sprintf("and %d more", more))
	}
	return cmp.Or(strings.Join(failed, ", "), "the tests end without a result"), nil
}
