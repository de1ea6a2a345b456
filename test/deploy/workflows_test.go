package deploy

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// TestActions checks that workflows pin actions by commit, and name its
// version. A tag can be moved.
func TestActions(t *testing.T) {
	workflows, err := filepath.Glob(filepath.Join(repository, ".github/workflows/*"))
	if err != nil {
		t.Fatal(err)
	}
	pinned := regexp.MustCompile(`^[\w-]+/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$`)
	found := 0
	for _, path := range workflows {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, match := range regexp.MustCompile(`(?m)\buses: (.*)$`).FindAllSubmatch(text, -1) {
			found++
			if !pinned.Match(match[1]) {
				t.Errorf("%s: got action %s, want OWNER/NAME@COMMIT # VERSION", path, match[1])
			}
		}
	}
	if found < 10 {
		t.Errorf("got %d actions", found)
	}
}

// TestReleaseWorkflow checks that the files that are published are built from a
// checked commit, in a job that does nothing as root, and that they are tested.
func TestReleaseWorkflow(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(repository, ".github/workflows/release.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	type job struct {
		Needs any
		Steps []struct {
			Run  string
			With map[string]any
		}
	}
	var workflow struct {
		Defaults struct{ Run struct{ Shell string } }
		Jobs     map[string]job
	}
	if err := yaml.Unmarshal(text, &workflow); err != nil {
		t.Fatal(err)
	}
	if shell := workflow.Defaults.Run.Shell; shell != "bash" { // the default has no pipefail
		t.Errorf("got shell %q, want bash", shell)
	}
	script := func(name string) (all string) {
		for _, step := range workflow.Jobs[name].Steps {
			all += step.Run + "\n"
		}
		return all
	}
	build := script("build")
	check, release := strings.Index(build, "deploy/release/check "), strings.Index(build, "make release\n")
	if check < 0 || release < check || strings.Contains(build, "sudo") ||
		workflow.Jobs["build"].Steps[0].With["fetch-depth"] != 0.0 {
		t.Errorf("the job build checks the commit at %d, builds at %d:\n%s", check, release, build)
	}
	if tests := script("test"); !strings.Contains(tests, "make test-release") {
		t.Errorf("the job test runs\n%s", tests)
	}
	if needs := fmt.Sprint(workflow.Jobs["publish"].Needs); needs != "[build test]" {
		t.Errorf("got jobs %s before publish, want build and test", needs)
	}
}

// TestReleaseCheck runs deploy/release/check in a repository with a branch.
func TestReleaseCheck(t *testing.T) {
	dir := t.TempDir()
	run := func(name string, args ...string) (string, error) {
		cmd := exec.Command(name, args...)
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	setup := `set -e; git init -q -b main; mkdir -p deploy/release; cp "$1/deploy/release/"{check,notes} deploy/release/
		git config user.name a; git config user.email a; git config commit.gpgsign false
		printf 'VERSION ?= v1.0.0\n' >Makefile; printf '## v1.0.0\n\n- new\n' >CHANGELOG.md
		git add -A; git commit -qm a
		git commit -q --allow-empty -m b; git update-ref refs/remotes/origin/main HEAD; git branch old HEAD~1
		git checkout -qb other; git commit -q --allow-empty -m c`
	source, err := filepath.Abs(repository)
	if err != nil {
		t.Fatal(err)
	}
	if out, err := run("bash", "-c", setup, "bash", source); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, tt := range []struct{ commit, version, want string }{
		{"main", "v1.0.0", "- new\n"},
		{"old", "v1.0.0", "- new\n"},
		{"other", "v1.0.0", "is not on the branch main"},
		{"main", "v1.0.1", "the version in the Makefile is not v1.0.1"},
	} {
		if out, err := run("git", "checkout", "-q", tt.commit); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		out, err := run("deploy/release/check", tt.version)
		if released := tt.want == "- new\n"; !strings.Contains(out, tt.want) || (err == nil) != released {
			t.Errorf("%s as %s: got %v, %s; want %s", tt.commit, tt.version, err, out, tt.want)
		}
	}
}
