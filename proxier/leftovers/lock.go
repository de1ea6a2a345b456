package leftovers

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/klog/v2"
)

// xtablesLock is the file that programs of iptables-legacy lock while they read and replace a table (XT_LOCK_NAME).
const xtablesLock = "/run/xtables.lock"

const (
	// lockWait is how long others may hold the lock. kube-proxy gives them 5 s as well.
	lockWait     = 5 * time.Second
	lockInterval = 10 * time.Millisecond
)

// lock takes the lock that is a file, which it makes as iptables does if there is none. Where that is not possible, as in a container
// without the host's /run, it goes without.
func lock(ctx context.Context, file string, wait time.Duration) (unlock func(), err error) {
	fd, err := unix.Open(file, unix.O_RDONLY|unix.O_CREAT|unix.O_CLOEXEC, 0o600)
	if err != nil {
		klog.FromContext(ctx).Info("Legacy tables are changed without iptables' lock", "file", file, "reason", err.Error())
		return func() {}, nil
	}
	unlock = func() { unix.Close(fd) }
	for end := time.Now().Add(wait); ; {
		err := unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB)
		switch {
		case err == nil:
			return unlock, nil
		case !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR):
			unlock()
			return nil, fmt.Errorf("lock %s: %w", file, err)
		case time.Now().After(end):
			unlock()
			return nil, fmt.Errorf("lock %s: another program has held it for %s", file, wait)
		}
		select {
		case <-ctx.Done():
			unlock()
			return nil, ctx.Err()
		case <-time.After(lockInterval):
		}
	}
}
