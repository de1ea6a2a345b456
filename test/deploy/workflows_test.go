package deploy

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"
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
