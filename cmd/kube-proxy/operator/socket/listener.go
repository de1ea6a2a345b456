package socket

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/klog/v2"
)

// listener is a socket that accepts connections of root and the own user only.
type listener struct {
	*net.UnixListener
	dir  *directory
	name string
}

// listen creates the socket of a network namespace in a directory, which it
// creates if necessary. It replaces a socket that no process listens on.
func listen(path string, namespace uint64) (*listener, error) {
	dir, err := prepareDirectory(path)
	if err != nil {
		return nil, err
	}
	l := &listener{dir: dir, name: socketName(namespace)}
	if err := l.open(); err != nil {
		return nil, errors.Join(err, dir.Close())
	}
	return l, nil
}

// prepareDirectory creates a directory that only this user can access. A
// directory of this user that others can access loses these permissions: the
// kubelet creates emptyDir volumes so.
func prepareDirectory(path string) (*directory, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	if err := os.Mkdir(path, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return nil, err
	}
	dir, err := openDirectory(path)
	if err != nil {
		return nil, err
	}
	var stat unix.Stat_t
	err = unix.Fstat(int(dir.Fd()), &stat)
	if err == nil && int(stat.Uid) == os.Geteuid() {
		err = dir.Chmod(0o700)
	}
	if err == nil {
		err = dir.check()
	}
	if err != nil {
		return nil, errors.Join(err, dir.Close())
	}
	return dir, nil
}

// open creates the socket. The lock makes a second proxy wait that starts at
// the same time.
func (l *listener) open() error {
	if err := l.dir.lock(); err != nil {
		return err
	}
	defer unix.Flock(int(l.dir.Fd()), unix.LOCK_UN)
	if err := l.removeStale(); err != nil {
		return err
	}
	address := l.dir.address(l.name)
	socket, err := net.ListenUnix("unix", &net.UnixAddr{Name: address})
	if err != nil {
		return fmt.Errorf("listen on %s: %w", l.path(), errors.Unwrap(err))
	}
	socket.SetUnlinkOnClose(false)
	l.UnixListener = socket
	if err := os.Chmod(address, 0o600); err != nil {
		return errors.Join(err, socket.Close())
	}
	return nil
}

// removeStale removes the sockets that no process listens on, of all network
// namespaces. If a process listens on this one, it is an error.
func (l *listener) removeStale() error {
	if err := l.dir.checkSocket(l.name); err != nil && !errors.Is(err, unix.ENOENT) {
		return err
	}
	names, err := l.dir.Readdirnames(-1)
	if err != nil {
		return err
	}
	for _, name := range names {
		if l.dir.checkSocket(name) != nil {
			continue // another file does not matter
		}
		conn, err := net.DialTimeout("unix", l.dir.address(name), time.Second)
		if errors.Is(err, unix.ECONNREFUSED) {
			err = unix.Unlinkat(int(l.dir.Fd()), name, 0)
		} else if name == l.name {
			err = l.inUse(conn, err)
		}
		if conn != nil {
			conn.Close()
		}
		if err != nil && name == l.name {
			return err
		}
	}
	return nil
}

// inUse returns the error for a socket on which another process listens. err is
// the error of the connection to it.
func (l *listener) inUse(conn net.Conn, err error) error {
	if err != nil {
		return fmt.Errorf("another proxy listens on %s, and does not answer: %w", l.path(), errors.Unwrap(err))
	}
	other, err := peer(conn.(*net.UnixConn))
	if err != nil {
		return fmt.Errorf("another proxy listens on %s: %w", l.path(), err)
	}
	return fmt.Errorf("another proxy of this network namespace, process %d, listens on %s", other.Pid, l.path())
}

func (l *listener) path() string { return filepath.Join(l.dir.Name(), l.name) }

// Accept implements net.Listener. It closes connections of other users.
func (l *listener) Accept() (net.Conn, error) {
	for {
		conn, err := l.AcceptUnix()
		if err != nil {
			return nil, err
		}
		if _, err := checkPeer(conn); err != nil {
			klog.V(2).InfoS("Refused a connection", "socket", l.path(), "reason", err)
			conn.Close()
			continue
		}
		return conn, nil
	}
}

// Close implements net.Listener. It removes the socket before it closes it: a
// proxy that starts meanwhile must find either a socket that answers, or none.
func (l *listener) Close() error {
	err := unix.Unlinkat(int(l.dir.Fd()), l.name, 0)
	return errors.Join(err, l.UnixListener.Close(), l.dir.Close())
}
