package manifest

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
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
