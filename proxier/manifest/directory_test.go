package manifest

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fsnotify/fsnotify"
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

func TestSettle(t *testing.T) {
	tests := []struct {
		name    string
		changes int           // after the first one
		every   time.Duration // between two changes
		done    bool          // the context is done
		want    time.Duration
	}{
		{name: "context that is done", done: true, changes: 1},
		{name: "one change", want: settleQuiet},
		{name: "burst", changes: 4, every: 50 * time.Millisecond, want: 4*50*time.Millisecond + settleQuiet},
		{name: "endless burst", changes: 1000, every: 50 * time.Millisecond, want: settleLimit},
		{name: "two separate changes", changes: 1, every: settleQuiet + time.Millisecond, want: settleQuiet},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if test.done {
					cancel()
				}
				changed := make(chan struct{}, 1)
				go func() {
					for range test.changes {
						select {
						case <-ctx.Done():
							return
						case <-time.After(test.every):
							changed <- struct{}{}
						}
					}
				}()
				begin := time.Now()
				settle(ctx, changed)
				if got := time.Since(begin); got != test.want {
					t.Errorf("got settle after %v, want %v", got, test.want)
				}
			})
		})
	}
}

// TestForward checks that every event and every error of fsnotify is a
// signal.
func TestForward(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		events := &fsnotify.Watcher{Events: make(chan fsnotify.Event), Errors: make(chan error)}
		changed, done := make(chan struct{}, 1), make(chan struct{})
		go func() {
			defer close(done)
			forward(events, changed)
		}()
		events.Events <- fsnotify.Event{Name: "web.yaml", Op: fsnotify.Chmod}
		<-changed
		events.Errors <- fsnotify.ErrEventOverflow
		<-changed
		// A pending signal does not block the next events.
		for range 10 {
			events.Events <- fsnotify.Event{Name: "web.yaml", Op: fsnotify.Write}
		}
		close(events.Events)
		<-done
	})
}
