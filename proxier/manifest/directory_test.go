package manifest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestSnapshotIsConsistent changes the directory during the reads.
func TestSnapshotIsConsistent(t *testing.T) {
	nothing := func(string, string, int) {}
	tests := []struct {
		name          string
		before, after func(a, b string, reads int) // called before and after each read, counted from 1
		want          string
		reads         int
	}{
		{"no change", nothing, nothing, "a.yaml: text", 1},
		{"renamed before the first read", onFirst(t, os.Rename), nothing, "b.yaml: text", 2},
		{
			"missing during the first read", onFirst(t, os.Rename),
			onFirst(t, func(a, b string) error { return os.Rename(b, a) }), "a.yaml: text", 2,
		},
		{"removed before each read", func(a, _ string, _ int) { _ = os.Remove(a) }, nothing, "", 2},
		{
			"written after each read", nothing,
			func(a, _ string, reads int) { write(t, a, strings.Repeat("x", reads)) },
			"a.yaml: xxxxxxxxx", maxSnapshotReads,
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			dir := t.TempDir()
			a, b := filepath.Join(dir, "a.yaml"), filepath.Join(dir, "b.yaml")
			write(t, a, "text")
			reads := 0
			snap, err := consistent(dir, func(l listing) map[string]content {
				reads++
				test.before(a, b, reads)
				defer test.after(a, b, reads)
				return l.read(dir)
			})
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, e := range snap.entries {
				got = append(got, e.name+": "+string(snap.contents[e.name].data))
			}
			if got := strings.Join(got, "\n"); got != test.want || reads != test.reads {
				t.Errorf("got %q after %d reads, want %q after %d", got, reads, test.want, test.reads)
			}
		})
	}
}

// onFirst returns a function that changes the files at the first read.
func onFirst(t *testing.T, change func(a, b string) error) func(a, b string, reads int) {
	return func(a, b string, reads int) {
		if reads > 1 {
			return
		}
		if err := change(a, b); err != nil {
			t.Error(err)
		}
	}
}
