package manifest

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func mkdir(t *testing.T, path string) string {
	t.Helper()
	if err := os.Mkdir(path, 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

// link creates a symbolic link. It replaces an existing file.
func link(t *testing.T, target, path string) {
	t.Helper()
	if err := os.Symlink(target, path+".new"); err != nil {
		t.Fatal(err)
	}
	rename(t, path+".new", path)
}

func rename(t *testing.T, from, to string) {
	t.Helper()
	if err := os.Rename(from, to); err != nil {
		t.Fatal(err)
	}
}

func removeAll(t *testing.T, path string) {
	t.Helper()
	if err := os.RemoveAll(path); err != nil {
		t.Fatal(err)
	}
}

func TestSnapshot(t *testing.T) {
	dir, elsewhere := t.TempDir(), t.TempDir()
	names := []string{"b.yml", "a.yaml", "c.json", "d.YAML", "e.txt", ".f.yaml", "yaml", "g.yaml~", ".yaml"}
	for _, name := range names {
		write(t, filepath.Join(dir, name), name)
	}
	mkdir(t, filepath.Join(dir, "h.yaml"))
	write(t, filepath.Join(dir, "h.yaml", "i.yaml"), "in a subdirectory")
	write(t, filepath.Join(elsewhere, "target"), "linked")
	link(t, filepath.Join(elsewhere, "target"), filepath.Join(dir, "j.yaml"))
	link(t, elsewhere, filepath.Join(dir, "k.yaml"))
	link(t, filepath.Join(elsewhere, "nothing"), filepath.Join(dir, "l.yaml"))
	if err := syscall.Mkfifo(filepath.Join(dir, "m.yaml"), 0o644); err != nil {
		t.Fatal(err)
	}

	snap, err := takeSnapshot(dir)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range snap.entries {
		c := snap.contents[e.name]
		switch {
		case c.err == nil:
			got = append(got, e.name+": "+string(c.data))
		case errors.Is(c.err, os.ErrNotExist):
			got = append(got, e.name+": dangling link")
		default:
			got = append(got, e.name+": "+c.err.Error())
		}
	}
	expectLines(t, got, []string{
		"a.yaml: a.yaml", "b.yml: b.yml", "c.json: c.json", "j.yaml: linked", "l.yaml: dangling link",
		"m.yaml: not a regular file",
	})
}

func TestListingSame(t *testing.T) {
	base, elsewhere := t.TempDir(), t.TempDir()
	dir := mkdir(t, filepath.Join(base, "manifests"))
	write(t, filepath.Join(dir, "a.yaml"), "1")
	write(t, filepath.Join(elsewhere, "target"), "1")
	link(t, filepath.Join(elsewhere, "target"), filepath.Join(dir, "b.yaml"))
	past := time.Now().Add(-time.Hour)
	steps := []struct {
		name   string
		change func()
		same   bool
	}{
		{name: "no change", change: func() {}, same: true},
		{
			name:   "file that is not a manifest",
			change: func() { write(t, filepath.Join(dir, "README"), "1") },
			same:   true,
		},
		{name: "different size", change: func() { write(t, filepath.Join(dir, "a.yaml"), "22") }},
		{name: "different size, same time", change: func() {
			info, err := os.Stat(filepath.Join(dir, "a.yaml"))
			if err != nil {
				t.Fatal(err)
			}
			write(t, filepath.Join(dir, "a.yaml"), "333")
			_ = os.Chtimes(filepath.Join(dir, "a.yaml"), info.ModTime(), info.ModTime())
		}},
		{name: "different time", change: func() { _ = os.Chtimes(filepath.Join(dir, "a.yaml"), past, past) }},
		{name: "different mode", change: func() { _ = os.Chmod(filepath.Join(dir, "a.yaml"), 0o600) }},
		{
			name:   "different size of a link target",
			change: func() { write(t, filepath.Join(elsewhere, "target"), "22") },
		},
		{name: "link target removed", change: func() { removeAll(t, filepath.Join(elsewhere, "target")) }},
		{name: "file added", change: func() { write(t, filepath.Join(dir, "c.yaml"), "1") }},
		{name: "file renamed", change: func() {
			rename(t, filepath.Join(dir, "c.yaml"), filepath.Join(dir, "d.yaml"))
		}},
		{name: "file removed", change: func() { removeAll(t, filepath.Join(dir, "d.yaml")) }},
		{name: "directory replaced", change: func() {
			rename(t, dir, dir+".old")
			mkdir(t, dir)
		}},
	}
	for _, step := range steps {
		before, err := list(dir)
		if err != nil {
			t.Fatal(err)
		}
		step.change()
		after, err := list(dir)
		if err != nil {
			t.Fatal(err)
		}
		if got := after.same(before); got != step.same {
			t.Errorf("%s: got same %v, want %v", step.name, got, step.same)
		}
	}
}

// TestSnapshotIsConsistent changes the directory during the reads.
func TestSnapshotIsConsistent(t *testing.T) {
	tests := []struct {
		name          string
		before, after func(a, b string, reads int) // called before and after each read, counted from 1
		want          []string
		reads         int
	}{
		{name: "no change", want: []string{"a.yaml: text"}, reads: 1},
		{
			name: "renamed before the first read",
			before: func(a, b string, reads int) {
				if reads == 1 {
					rename(t, a, b)
				}
			},
			want: []string{"b.yaml: text"}, reads: 2,
		},
		{
			name: "missing during the first read",
			before: func(a, b string, reads int) {
				if reads == 1 {
					rename(t, a, b)
				}
			},
			after: func(a, b string, reads int) {
				if reads == 1 {
					rename(t, b, a)
				}
			},
			want: []string{"a.yaml: text"}, reads: 2,
		},
		{
			name:   "removed before each read",
			before: func(a, _ string, _ int) { removeAll(t, a) },
			reads:  2,
		},
		{
			name:  "written after each read",
			after: func(a, _ string, reads int) { write(t, a, strings.Repeat("x", reads)) },
			want:  []string{"a.yaml: xxxxxxxxx"}, reads: maxSnapshotReads,
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
				if test.before != nil {
					test.before(a, b, reads)
				}
				if test.after != nil {
					defer test.after(a, b, reads)
				}
				return l.read(dir)
			})
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, e := range snap.entries {
				got = append(got, e.name+": "+string(snap.contents[e.name].data))
			}
			expectLines(t, got, test.want)
			if reads != test.reads {
				t.Errorf("got %d reads, want %d", reads, test.reads)
			}
		})
	}
}
