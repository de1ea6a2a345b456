package socket

import (
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// runDir is the directory of the sockets.
const runDir = "/run/nftproxy"

// directory is an open directory of sockets that no other user can write to. It
// stays the same directory when a path is replaced.
type directory struct{ *os.File }

// openDirectory opens a directory. It does not follow a symbolic link.
func openDirectory(path string) (*directory, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open directory", Path: path, Err: err}
	}
	return &directory{os.NewFile(uintptr(fd), path)}, nil
}

// openDirectoryIn opens a directory below root, as a process with this root
// directory would. It is openDirectory if root is "".
func openDirectoryIn(root, path string) (*directory, error) {
	if root == "" {
		return openDirectory(path)
	}
	top, err := unix.Open(root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open directory", Path: root, Err: err}
	}
	defer unix.Close(top)
	fd, err := unix.Openat2(top, strings.TrimPrefix(path, root), &unix.OpenHow{
		Flags:   unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS,
	})
	if err != nil {
		return nil, &fs.PathError{Op: "open directory", Path: path, Err: err}
	}
	return &directory{os.NewFile(uintptr(fd), path)}, nil
}

// check returns an error if a user other than root and the user of this process
// can replace a socket in the directory.
func (d *directory) check() error {
	var stat unix.Stat_t
	if err := unix.Fstat(int(d.Fd()), &stat); err != nil {
		return &fs.PathError{Op: "stat", Path: d.Name(), Err: err}
	}
	switch {
	case !trusted(stat.Uid):
		return fmt.Errorf("directory %s belongs to user %d, not to root", d.Name(), stat.Uid)
	case stat.Mode&0o022 != 0:
		return fmt.Errorf("other users may write to directory %s (mode %#o)", d.Name(), stat.Mode&0o777)
	}
	return nil
}

// lock locks the directory. Another proxy holds the lock only while it creates
// its socket.
func (d *directory) lock() (err error) {
	for range 100 {
		if err = unix.Flock(int(d.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != unix.EWOULDBLOCK {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if err != nil {
		return &fs.PathError{Op: "lock directory", Path: d.Name(), Err: err}
	}
	return nil
}

// checkSocket returns an error unless the directory has a socket with this
// name. The error wraps ENOENT if it has no file with this name.
func (d *directory) checkSocket(name string) error {
	var stat unix.Stat_t
	if err := unix.Fstatat(int(d.Fd()), name, &stat, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return &fs.PathError{Op: "stat", Path: d.Name() + "/" + name, Err: err}
	}
	if stat.Mode&unix.S_IFMT != unix.S_IFSOCK {
		return fmt.Errorf("%s/%s is not a socket", d.Name(), name)
	}
	return nil
}

// address returns the address of a socket in the directory. It does not depend
// on the path of the directory, which can be longer than the kernel allows.
func (d *directory) address(name string) string {
	return "/proc/self/fd/" + strconv.Itoa(int(d.Fd())) + "/" + name
}

// trusted reports whether a user is root or the user of this process.
func trusted(uid uint32) bool { return uid == 0 || int(uid) == os.Geteuid() }

// socketName returns the name of the socket of a network namespace.
func socketName(namespace uint64) string { return strconv.FormatUint(namespace, 10) + ".sock" }

// networkNamespace returns the number of the network namespace of a process or
// thread: the inode of its file in /proc.
func networkNamespace(process string) (uint64, error) {
	var stat unix.Stat_t
	path := process + "/ns/net"
	if err := unix.Stat(path, &stat); err != nil {
		return 0, &fs.PathError{Op: "stat", Path: path, Err: err}
	}
	return stat.Ino, nil
}
