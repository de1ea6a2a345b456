package manifest

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fsnotify/fsnotify"
)

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
