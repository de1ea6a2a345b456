package manifest

import (
	"context"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fsnotify/fsnotify"
	"k8s.io/klog/v2"
)

// awaitChange waits for a signal.
func (w *watch) awaitChange(t *testing.T, what string) {
	t.Helper()
	select {
	case <-w.changed:
	case <-time.After(timeout):
		t.Fatalf("got no signal of %s", what)
	}
}

// TestWatchFollowsDirectory checks that the watch follows a directory that is
// linked, removed or moved.
func TestWatchFollowsDirectory(t *testing.T) {
	base := t.TempDir()
	first, second := mkdir(t, filepath.Join(base, "first")), mkdir(t, filepath.Join(base, "second"))
	dir := filepath.Join(base, "dir")
	link(t, first, dir)
	recorder := newRecorder()
	logger := klog.New(recorder)
	w := newWatch(dir)
	defer w.close()
	// settled consumes the signals of the replacement, then expects one of a
	// write.
	settled := func(what string) {
		t.Helper()
		settle(t.Context(), w.changed)
		w.follow(logger)
		settle(t.Context(), w.changed)
		write(t, filepath.Join(dir, "web.yaml"), what)
		w.awaitChange(t, what)
	}
	settled("the first directory")
	write(t, filepath.Join(dir, "web.yaml"), "second write")
	w.awaitChange(t, "second write")

	link(t, second, dir)
	settled("the new link target")

	removeAll(t, second)
	mkdir(t, second)
	settled("a directory that was replaced")

	rename(t, second, second+".away")
	w.follow(logger)
	rename(t, second+".away", second)
	settled("a directory that was moved back")
	if lines := recorder.takeLines(); len(lines) != 0 {
		t.Errorf("got log %q, want none", lines)
	}
}

func TestSettle(t *testing.T) {
	tests := []struct {
		name    string
		changes int           // after the first one
		every   time.Duration // between two changes
		want    time.Duration
	}{
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

func TestSettleEndsWithContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		begin := time.Now()
		settle(ctx, make(chan struct{}))
		if waited := time.Since(begin); waited != 0 {
			t.Errorf("got a wait of %v with a context that is done, want none", waited)
		}
	})
}

// TestForward checks that every event and every error of fsnotify is a
// signal.
func TestForward(t *testing.T) {
	events := &fsnotify.Watcher{Events: make(chan fsnotify.Event), Errors: make(chan error)}
	w := newWatch(t.TempDir())
	done := make(chan struct{})
	go func() {
		defer close(done)
		forward(events, w.changed)
	}()
	events.Events <- fsnotify.Event{Name: "web.yaml", Op: fsnotify.Chmod}
	w.awaitChange(t, "chmod")
	events.Errors <- fsnotify.ErrEventOverflow
	w.awaitChange(t, "overflow")
	// A pending signal does not block the next events.
	for range 10 {
		events.Events <- fsnotify.Event{Name: "web.yaml", Op: fsnotify.Write}
	}
	close(events.Events)
	close(events.Errors)
	select {
	case <-done:
	case <-time.After(timeout):
		t.Error("forward did not return after events were closed")
	}
}
