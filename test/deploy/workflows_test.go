package deploy

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/nftproxy/nftproxy/test/must"
)

// TestActions checks that workflows pin actions by commit, and name its
// version. A tag can be moved.
func TestActions(t *testing.T) {
	workflows, err := filepath.Glob(filepath.Join(repository, ".github/workflows/*"))
	must.NoError(t, err)
	pinned := regexp.MustCompile(`^[\w-]+/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$`)
	found := 0
	for _, path := range workflows {
		text, err := os.ReadFile(path)
		must.NoError(t, err)
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
	must.NoError(t, err)
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
	must.NoError(t, yaml.Unmarshal(text, &workflow))
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
