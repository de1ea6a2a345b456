package socket

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
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
