package manifest

import (
	"context"
	"io/fs"
	"os"
	"time"

	"github.com/fsnotify/fsnotify"
	"k8s.io/klog/v2"
)

const (
	settleQuiet  = 75 * time.Millisecond  // a burst of changes ends after this pause
	settleLimit  = 500 * time.Millisecond // maximum length of a burst
	pollInterval = time.Second
)

// watch signals that a directory may have changed. Its users must also poll
// the directory: there are no events for the targets of symbolic links,
// events can be lost, and some file systems have none.
type watch struct {
	dir     string
	changed chan struct{} // has a buffer of one signal
	events  *fsnotify.Watcher
	watched fs.FileInfo // the directory that events watches
	err     error       // of the last attempt to watch the directory
}

func newWatch(dir string) *watch {
	return &watch{dir: dir, changed: make(chan struct{}, 1)}
}

// follow watches the directory that currently has the name. The name can be a
// link that changed. A removed directory has no watch, even if a new
// directory has the same inode number.
func (w *watch) follow(logger klog.Logger) {
	info, err := os.Stat(w.dir)
	if err != nil {
		return // listing the directory reports the error
	}
	if w.events != nil && len(w.events.WatchList()) > 0 && os.SameFile(info, w.watched) {
		return
	}
	w.close()
	// If the directory is replaced at this point, the next poll detects that
	// info does not describe the watched directory.
	w.watched = info
	err = w.open()
	if err != nil && w.err == nil {
		logger.Error(err, "Failed to watch manifest directory, polling it", "dir", w.dir, "interval", pollInterval)
	}
	w.err = err
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

// close stops the events.
func (w *watch) close() {
	if w.events != nil {
		w.events.Close()
		w.events = nil
	}
}

// forward signals changed for each event and each error, such as the loss of
// events. It returns when events is closed.
func forward(events *fsnotify.Watcher, changed chan<- struct{}) {
	for open := true; open; {
		select {
		case _, open = <-events.Events:
		case _, open = <-events.Errors:
		}
		select {
		case changed <- struct{}{}:
		default: // the previous signal is still pending
		}
	}
}

// settle waits for the end of a burst of changes, at most settleLimit.
func settle(ctx context.Context, changed <-chan struct{}) {
	ctx, cancel := context.WithTimeout(ctx, settleLimit)
	defer cancel()
	for {
		select {
		case <-changed:
		case <-time.After(settleQuiet):
			return
		case <-ctx.Done():
			return
		}
	}
}
