package socket

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// proxyName is the name of a proxy's process.
const proxyName = "kube-proxy"

// Proxies returns the ids of the processes that have the name of a proxy and
// the network namespace of the calling thread, in ascending order. proc is the
// directory /proc: in a container it has only the processes of the container.
func Proxies(ctx context.Context, proc string) ([]int32, error) {
	namespace, err := networkNamespace("/proc/thread-self")
	if err != nil {
		return nil, err
	}
	return proxiesIn(ctx, proc, namespace)
}

func proxiesIn(ctx context.Context, proc string, namespace uint64) (pids []int32, err error) {
	dir, err := os.Open(proc)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		pid, err := strconv.ParseInt(name, 10, 32)
		if err == nil && isProxy(filepath.Join(proc, name), namespace) {
			pids = append(pids, int32(pid))
		}
	}
	slices.Sort(pids)
	return pids, nil
}

// isProxy reports whether a process has the name of a proxy and is in a network
// namespace. A process that has ended is not.
func isProxy(process string, namespace uint64) bool {
	comm, err := os.ReadFile(filepath.Join(process, "comm"))
	if err != nil || strings.TrimSpace(string(comm)) != proxyName {
		return false
	}
	found, err := networkNamespace(process)
	return err == nil && found == namespace
}

// canProgram reports whether a process has CAP_NET_ADMIN over its network
// namespace: in the user namespace that owns it or in an ancestor. Any process
// has all capabilities in a user namespace that it creates.
func canProgram(process string) bool {
	var own, found unix.Stat_t
	if !hasNetAdmin(process) || unix.Stat(process+"/ns/user", &own) != nil {
		return false
	}
	fd, err := unix.Open(process+"/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	for request := uint(unix.NS_GET_USERNS); err == nil; request = unix.NS_GET_PARENT {
		child := fd
		fd, err = unix.IoctlRetInt(child, request) // EPERM without a parent
		unix.Close(child)
		if err == nil && unix.Fstat(fd, &found) == nil && found.Ino == own.Ino {
			unix.Close(fd)
			return true
		}
	}
	return false
}

// hasNetAdmin reports whether a process has CAP_NET_ADMIN in its own user
// namespace.
func hasNetAdmin(process string) bool {
	status, err := os.ReadFile(process + "/status")
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(status)) {
		if set, ok := strings.CutPrefix(line, "CapEff:"); ok {
			effective, err := strconv.ParseUint(strings.TrimSpace(set), 16, 64)
			return err == nil && effective&(1<<unix.CAP_NET_ADMIN) != 0
		}
	}
	return false
}

// peer returns the process on the other side of a connection, according to the
// kernel. For a client it is the process that listens.
func peer(conn *net.UnixConn) (*unix.Ucred, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, err
	}
	var cred *unix.Ucred
	var errGet error
	err = raw.Control(func(fd uintptr) {
		cred, errGet = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	return cred, cmp.Or(err, errGet)
}

// checkPeer returns the process on the other side of a connection. It
// returns an error if the process belongs to neither root nor the user of this
// process.
func checkPeer(conn *net.UnixConn) (*unix.Ucred, error) {
	cred, err := peer(conn)
	if err != nil {
		return nil, fmt.Errorf("read the credentials of the peer: %w", err)
	}
	if !trusted(cred.Uid) {
		return nil, fmt.Errorf("process %d belongs to user %d, not to root", cred.Pid, cred.Uid)
	}
	return cred, nil
}
