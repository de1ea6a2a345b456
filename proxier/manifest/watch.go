package manifest

import (
	"context"
	"io/fs"
	"os"
	"time"

	"github.com/fsnotify/fsnotify"
	"k8s.io/klog/v2"
)

// When a change is taken up.
const (
	quiet    = 75 * time.Millisecond  // a burst of changes is over
	limit    = 500 * time.Millisecond // a burst is taken up though it goes on
	interval = time.Second            // between two looks at the directory
)

// watch tells when something may have changed in a directory. It is a help only: whoever uses it must look
// from time to time by itself, since events tell nothing of what symbolic links lead to, may be lost, and
// are not to be had on some file systems.
type watch struct {
	dir     string
	changed chan struct{} // holds one element from a change until it is taken up
	events  *fsnotify.Watcher
	watched fs.FileInfo // the directory that events come from
	err     error       // why there are no events
}

func newWatch(dir string) *watch {
	return &watch{dir: dir, changed: make(chan struct{}, 1)}
}

// follow makes events come from what is the directory now: its name can lead to another one, and a removed
// directory has no watch any more, even if its successor got the same inode number.
func (w *watch) follow(logger klog.Logger) {
	info, err := os.Stat(w.dir)
	if err != nil {
		return // Whoever lists the directory will hear of it.
	}
	if w.events != nil && len(w.events.WatchList()) > 0 && os.SameFile(info, w.watched) {
		return
	}
	w.close()
	// Should the directory be replaced here, info is not that of the directory watched, and the next look
	// will tell.
	w.watched = info
	if err := w.open(); err != nil {
		if w.err == nil {
			logger.Error(err, "Cannot watch manifest directory, looking at it from time to time instead",
				"dir", w.dir, "interval", interval)
		}
		w.err = err
		return
	}
	w.err = nil
}

// open starts to forward events.
func (w *watch) open() error {
	events, err := fsnotify.NewWatcher()
	if err != nil {
		return err
	}
	if err := events.Add(w.dir); err != nil {
		events.Close()
		return err
	}
	w.events = events
	go forward(events, w.changed)
	return nil
}

// close ends the events.
func (w *watch) close() {
	if w.events != nil {
		w.events.Close()
		w.events = nil
	}
}

// forward turns events and errors, such as the loss of events, into the one thing that matters: that there is
// reason to read everything. It ends when events are closed.
func forward(events *fsnotify.Watcher, changed chan<- struct{}) {
	for open := true; open; {
		select {
		case _, open = <-events.Events:
		case _, open = <-events.Errors:
		}
		select {
		case changed <- struct{}{}:
		default: // The last change is not taken up yet.
		}
	}
}

// settle waits until a burst of changes is over, but not longer than limit.
func settle(ctx context.Context, changed <-chan struct{}) {
	deadline := time.NewTimer(limit)
	defer deadline.Stop()
	over := time.NewTimer(quiet)
	defer over.Stop()
	for {
		select {
		case <-changed:
			over.Reset(quiet)
		case <-over.C:
			return
		case <-deadline.C:
			return
		case <-ctx.Done():
			return
		}
	}
}
