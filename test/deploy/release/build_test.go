package release

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestReproducible builds the release again from a copy of the source in
// another folder, and compares all files bit for bit.
func TestReproducible(t *testing.T) {
	source := filepath.Join(t.TempDir(), "another", "folder")
	copySource(t, source)
	env := []string{
		"COMMIT=" + strings.TrimSpace(run(t, "git", "rev-parse", "HEAD")),
		"SOURCE_DATE_EPOCH=" + strings.TrimSpace(run(t, "git", "log", "-1", "--format=%ct")),
	}
	second := filepath.Join(t.TempDir(), "release")
	runIn(t, env, filepath.Join(source, "deploy/release/build"), environment(t, "VERSION"), second)
	first := environment(t, "RELEASE")
	if a, b := names(t, first), names(t, second); !slices.Equal(a, b) {
		t.Fatalf("got files %q, and %q from the second build", a, b)
	}
	for _, name := range names(t, first) {
		expectEqual(t, filepath.Join(first, name), filepath.Join(second, name))
	}
}

// copySource copies the files that git has, or would add.
func copySource(t *testing.T, to string) {
	t.Helper()
	if err := os.MkdirAll(to, 0o755); err != nil {
		t.Fatal(err)
	}
	copying := exec.Command("sh", "-c", `git ls-files -z --cached --others --exclude-standard |
		tar --create --null --files-from=- --ignore-failed-read | tar --extract --directory="$1"`, "sh", to)
	copying.Dir = repository
	if out, err := copying.CombinedOutput(); err != nil {
		t.Fatalf("copy the source: %v\n%s", err, out)
	}
}

// names returns the names of the files in a folder.
func names(t *testing.T, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// TestChecksums checks that the checksums are correct and that no file lacks
// one.
func TestChecksums(t *testing.T) {
	check := exec.Command("sha256sum", "--check", "--strict", "checksums.txt")
	check.Dir = environment(t, "RELEASE")
	out, err := check.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	checked := strings.Count(string(out), ": OK\n")
	if all := len(names(t, environment(t, "RELEASE"))); checked != all-1 || checked < 12 {
		t.Errorf("got %d checksums of %d files", checked, all-1)
	}
}

// TestNotes checks that the release notes are the section of this version, or,
// before the release, the next one.
func TestNotes(t *testing.T) {
	script := filepath.Join(repository, "deploy/release/notes")
	out, err := exec.Command(script, environment(t, "VERSION")).Output()
	if err != nil {
		t.Logf("CHANGELOG.md has no section %s yet; checking Unreleased", environment(t, "VERSION"))
		out = []byte(run(t, script, "Unreleased"))
	}
	if text := string(out); !strings.Contains(text, "\n- ") || strings.Contains(text, "\n## ") {
		t.Errorf("got release notes\n%s", text)
	}
	out, err = exec.Command(script, "v0.0.0").CombinedOutput()
	if err == nil || !strings.Contains(string(out), `CHANGELOG.md needs one section "## v0.0.0"`) {
		t.Errorf("a version without a section: got %v, %s", err, out)
	}
}
