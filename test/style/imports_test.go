package style

import (
	"go/build"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/nftproxy/nftproxy/test/must"
)

const module = "github.com/nftproxy/nftproxy/"

// rules are the rules of testdata/imports.yaml: package names, without the
// module, and what these packages may import.
type rules struct {
	Own, Foreign      map[string][]string
	Pure, InputOutput []string
}

// Imports run in one direction, and proxier/ruleset performs no I/O.
func TestImports(t *testing.T) {
	text, err := os.ReadFile("testdata/imports.yaml")
	must.NoError(t, err)
	var r rules
	must.NoError(t, yaml.UnmarshalStrict(text, &r))
	seen := 0
	walk(t, func(path string, d fs.DirEntry) {
		if !d.IsDir() {
			return
		}
		pkg, err := build.ImportDir(path, 0)
		if err != nil {
			return // no Go files for this system
		}
		name, err := filepath.Rel(root, path)
		must.NoError(t, err)
		name = filepath.ToSlash(name)
		if _, listed := r.Own[name]; listed {
			seen++
		}
		for _, imported := range pkg.Imports {
			if why := r.forbidden(name, imported); why != "" {
				t.Errorf("package %s imports %s: %s", name, imported, why)
			}
		}
		for _, imported := range append(pkg.TestImports, pkg.XTestImports...) {
			if importsCommand(name, imported) {
				t.Errorf("tests of package %s import %s: %s", name, imported, onlyCommand)
			}
		}
	})
	if seen != len(r.Own) {
		t.Errorf("got %d of the %d packages with a rule; was one renamed?", seen, len(r.Own))
	}
}

const onlyCommand = "only cmd and test import cmd"

// importsCommand reports whether a package outside of cmd and test imports a
// part of a command.
func importsCommand(name, imported string) bool {
	return strings.HasPrefix(imported, module+"cmd/") && !strings.HasPrefix(name, "cmd/") &&
		!strings.HasPrefix(name, "test/")
}

// forbidden returns the reason why a package must not import another one, "" if
// it may.
func (r *rules) forbidden(name, imported string) string {
	if own, ok := strings.CutPrefix(imported, module); ok {
		if importsCommand(name, imported) {
			return onlyCommand
		}
		if allowed, rule := r.Own[name]; rule && !slices.Contains(allowed, own) {
			return "see own in testdata/imports.yaml"
		}
		return ""
	}
	if first, _, _ := strings.Cut(imported, "/"); !strings.Contains(first, ".") { // the standard library
		if slices.Contains(r.Pure, name) && slices.Contains(r.InputOutput, imported) {
			return "the package must not perform I/O"
		}
		return ""
	}
	allowed, rule := r.Foreign[name]
	isAllowed := func(prefix string) bool { return strings.HasPrefix(imported, prefix) }
	if rule && !slices.ContainsFunc(allowed, isAllowed) {
		return "see foreign in testdata/imports.yaml"
	}
	return ""
}

// The command does not link the clientset of client-go, and with it the types
// of all API groups: 11 MB of the program and 8 MB of its resident memory.
func TestNoClientset(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", "../../cmd/kube-proxy").Output()
	must.NoError(t, err)
	for _, path := range strings.Fields(string(out)) {
		if strings.HasPrefix(path, "k8s.io/client-go/kubernetes") {
			t.Errorf("cmd/kube-proxy depends on %s", path)
		}
	}
}
