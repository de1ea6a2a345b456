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

// awaitChange waits for an event, nothing being polled.
func (w *watch) awaitChange(t *testing.T, what string) {
	t.Helper()
	select {
	case <-w.changed:
	case <-time.After(patience):
		t.Fatalf("no event of %s", what)
	}
}

// TestWatchFollowsDirectory checks that events come from what is the directory at the time, whatever became of it.
func TestWatchFollowsDirectory(t *testing.T) {
	base := t.TempDir()
	first, second := mkdir(t, filepath.Join(base, "first")), mkdir(t, filepath.Join(base, "second"))
	dir := filepath.Join(base, "dir")
	link(t, first, dir)
	recorder := newRecorder()
	logger := klog.New(recorder)
	w := newWatch(dir)
	defer w.close()
	// settled takes up the events of the replacement, then expects one of a write.
	settled := func(what string) {
		t.Helper()
		settle(t.Context(), w.changed)
		w.follow(logger)
		settle(t.Context(), w.changed)
		write(t, filepath.Join(dir, "web.yaml"), what)
		w.awaitChange(t, what)
	}
	settled("the first directory")
	write(t, filepath.Join(dir, "web.yaml"), "once more")
	w.awaitChange(t, "another write")

	link(t, second, dir)
	settled("where the link leads now")

	removeAll(t, second)
	mkdir(t, second)
	settled("a directory that was made again")

	rename(t, second, second+".away")
	w.follow(logger)
	rename(t, second+".away", second)
	settled("a directory that was away")
	if lines := recorder.takeLines(); len(lines) != 0 {
		t.Errorf("log is %q", lines)
	}
}

func TestSettle(t *testing.T) {
	tests := []struct {
		name    string
		changes int           // after the first one
		every   time.Duration // between two of them
		want    time.Duration
	}{
		{name: "one change", want: quiet},
		{name: "a burst", changes: 4, every: 50 * time.Millisecond, want: 4*50*time.Millisecond + quiet},
		{name: "no end", changes: 1000, every: 50 * time.Millisecond, want: limit},
		{name: "two changes apart", changes: 1, every: quiet + time.Millisecond, want: quiet},
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
				// The clock is synctest's: nothing here depends on the machine.
				if got := time.Since(begin); got != test.want {
					t.Errorf("settled after %v, want %v", got, test.want)
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
			t.Errorf("waited %v for a context that is done", waited)
		}
	})
}

// TestForward checks that whatever comes from fsnotify is a change, the loss of events too.
func TestForward(t *testing.T) {
	events := &fsnotify.Watcher{Events: make(chan fsnotify.Event), Errors: make(chan error)}
	w := newWatch(t.TempDir())
	done := make(chan struct{})
	go func() {
		defer close(done)
		forward(events, w.changed)
	}()
	events.Events <- fsnotify.Event{Name: "web.yaml", Op: fsnotify.Chmod}
	w.awaitChange(t, "a chmod")
	events.Errors <- fsnotify.ErrEventOverflow
	w.awaitChange(t, "an overflow")
	// A change that nobody has taken up yet does not hold up the next ones.
	for range 10 {
		events.Events <- fsnotify.Event{Name: "web.yaml", Op: fsnotify.Write}
	}
	close(events.Events)
	close(events.Errors)
	select {
	case <-done:
	case <-time.After(patience):
		t.Error("forward goes on after the end of events")
	}
}
