package manifest

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/fsnotify/fsnotify"
	"k8s.io/klog/v2"
)

// errNotRegular is the problem of a named pipe, a device or a socket that has
// the name of a manifest.
var errNotRegular = errors.New("not a regular file")

// listing is the state of the directory without the content of its files.
// Equal listings mean equal content, with one exception: a file was
// overwritten with the same size within the resolution of its modification
// time.
type listing struct {
	dir     fs.FileInfo
	entries []entry // by name
	// ignored are the names of other files and of folders, unless they are
	// hidden. They do not belong to the state.
	ignored []string
}

// entry is a manifest in the directory. info describes the target if the
// manifest is a symbolic link.
type entry struct {
	name string
	info fs.FileInfo
	err  error // set if info is nil, for example for a dangling link
}

// list returns the content of the directory.
func list(dir string) (listing, error) {
	info, err := os.Stat(dir)
	if err != nil {
		return listing{}, err
	}
	found, err := os.ReadDir(dir)
	if err != nil {
		return listing{}, err
	}
	result := listing{dir: info}
	for _, f := range found {
		if strings.HasPrefix(f.Name(), ".") {
			continue
		}
		e := entry{name: f.Name()}
		if !slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(e.name)) {
			if f.IsDir() {
				e.name += "/"
			}
			result.ignored = append(result.ignored, e.name)
			continue
		}
		e.info, e.err = os.Stat(filepath.Join(dir, e.name))
		if e.err == nil && e.info.IsDir() {
			result.ignored = append(result.ignored, e.name+"/")
			continue
		}
		result.entries = append(result.entries, e)
	}
	return result, nil
}

// same reports whether two listings are equal.
func (l listing) same(other listing) bool {
	return os.SameFile(l.dir, other.dir) && slices.EqualFunc(l.entries, other.entries, entry.same)
}

func (e entry) same(other entry) bool {
	if e.name != other.name || (e.err == nil) != (other.err == nil) {
		return false
	}
	return e.err != nil ||
		os.SameFile(e.info, other.info) &&
			e.info.Size() == other.info.Size() &&
			e.info.Mode() == other.info.Mode() &&
			e.info.ModTime().Equal(other.info.ModTime())
}

// content is the content of a file, or the error of reading it.
type content struct {
	data []byte
	err  error
}

// snapshot is a listing with the content of its manifests.
type snapshot struct {
	listing
	contents map[string]content // by name
}

// takeSnapshot reads the directory.
func takeSnapshot(dir string) (snapshot, error) {
	return consistent(dir, func(l listing) map[string]content { return l.read(dir) })
}

// maxSnapshotReads limits the reads of a directory that keeps changing. The
// last read is used although it may be inconsistent.
const maxSnapshotReads = 10

// consistent lists and reads the directory until it does not change between
// both. Otherwise a file that is renamed in between would be missing under
// both names, and its objects would be deleted.
func consistent(dir string, read func(listing) map[string]content) (snapshot, error) {
	var snap snapshot
	before, err := list(dir)
	for range maxSnapshotReads {
		if err != nil {
			return snapshot{}, err
		}
		snap = snapshot{listing: before, contents: read(before)}
		if before, err = list(dir); err == nil && before.same(snap.listing) && !snap.missed() {
			break
		}
	}
	return snap, err
}

// missed reports whether a listed file did not exist when it was read.
func (s snapshot) missed() bool {
	return slices.ContainsFunc(s.entries, func(e entry) bool {
		return e.err == nil && errors.Is(s.contents[e.name].err, fs.ErrNotExist)
	})
}

func (l listing) read(dir string) map[string]content {
	contents := make(map[string]content, len(l.entries))
	total := 0
	for _, e := range l.entries {
		data, err := e.read(dir)
		if total += len(data); total > maxTotalSize {
			total -= len(data)
			data, err = nil, errTotalSize
		}
		contents[e.name] = content{data: data, err: err}
	}
	return contents
}

func (e entry) read(dir string) ([]byte, error) {
	if e.err != nil {
		return nil, e.err
	}
	switch {
	case !e.info.Mode().IsRegular():
		return nil, errNotRegular
	case e.info.Size() > maxFileSize:
		return nil, errFileSize
	}
	// O_NONBLOCK: the file may have been replaced by a named pipe.
	f, err := os.OpenFile(filepath.Join(dir, e.name), os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFileSize+1))
	if len(data) > maxFileSize {
		return nil, errFileSize
	}
	return data, err
}

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
