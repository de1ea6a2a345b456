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

// errNotRegular is what is wrong with a named pipe, a device or a socket that is called web.yaml.
var errNotRegular = errors.New("not a regular file")

// listing is the state of the directory as far as it shows without reading files. Two equal ones mean that
// nothing has changed, but for a change in place of equal size within the resolution of the file's time.
type listing struct {
	dir     fs.FileInfo
	entries []entry // by name
}

// entry is one manifest in the directory. A symbolic link stands for what it leads to.
type entry struct {
	name string
	info fs.FileInfo
	err  error // why there is no info, a link that leads nowhere for instance
}

// list returns the manifests in the directory: files called *.yaml, *.yml and *.json that are not hidden.
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
		if !isManifestName(f.Name()) {
			continue
		}
		e := entry{name: f.Name()}
		e.info, e.err = os.Stat(filepath.Join(dir, e.name))
		if e.err == nil && e.info.IsDir() {
			continue
		}
		result.entries = append(result.entries, e)
	}
	return result, nil
}

func isManifestName(name string) bool {
	extensions := []string{".yaml", ".yml", ".json"}
	return !strings.HasPrefix(name, ".") && slices.Contains(extensions, filepath.Ext(name))
}

// same tells whether nothing changed between two listings.
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

// content is what reading a file gave.
type content struct {
	data []byte
	err  error
}

// snapshot is a directory with the content of its manifests.
type snapshot struct {
	listing
	contents map[string]content // by name
}

// takeSnapshot reads the directory.
func takeSnapshot(dir string) (snapshot, error) {
	return consistent(
		func() (listing, error) { return list(dir) },
		func(l listing) map[string]content { return l.read(dir) },
	)
}

// consistent lists and reads until nothing changes meanwhile: a file that is renamed between the two would
// otherwise be missing under both names, and its objects with it.
func consistent(list func() (listing, error), read func(listing) map[string]content) (snapshot, error) {
	var taken snapshot
	before, err := list()
	for range maxSnapshotReads {
		if err != nil {
			return snapshot{}, err
		}
		taken = snapshot{listing: before, contents: read(before)}
		if before, err = list(); err == nil && before.same(taken.listing) && !taken.missed() {
			break
		}
	}
	return taken, err
}

// missed tells whether a file was there when the directory was listed, and not when it was to be read.
func (s snapshot) missed() bool {
	return slices.ContainsFunc(s.entries, func(e entry) bool {
		return e.err == nil && errors.Is(s.contents[e.name].err, fs.ErrNotExist)
	})
}

// maxSnapshotReads limits how often a directory that keeps changing is read before it is taken as it is.
const maxSnapshotReads = 10

// read reads the listed files.
func (l listing) read(dir string) map[string]content {
	contents := make(map[string]content, len(l.entries))
	for _, e := range l.entries {
		data, err := e.read(dir)
		contents[e.name] = content{data: data, err: err}
	}
	return contents
}

func (e entry) read(dir string) ([]byte, error) {
	if e.err != nil {
		return nil, e.err
	}
	if !e.info.Mode().IsRegular() {
		return nil, errNotRegular
	}
	// Nobody waits for the other end of a pipe that took the file's place.
	f, err := os.OpenFile(filepath.Join(dir, e.name), os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(f)
}
