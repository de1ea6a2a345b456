package xtables

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/klog/v2"
)

// LockFile is the lock file of iptables-legacy programs (XT_LOCK_NAME).
const LockFile = "/run/xtables.lock"

const (
	// lockWait is the timeout for the lock, as in kube-proxy.
	lockWait     = 5 * time.Second
	lockInterval = 10 * time.Millisecond
)

// lock locks a file, which it creates like iptables if it does not exist. If
// it cannot open the file, as in a container without the host's /run, it
// returns without a lock.
func lock(ctx context.Context, file string, wait time.Duration) (unlock func(), err error) {
	fd, err := unix.Open(file, unix.O_RDONLY|unix.O_CREAT|unix.O_CLOEXEC, 0o600)
	if err != nil {
		klog.FromContext(ctx).Info("Changing legacy tables without the lock of iptables",
			"file", file, "reason", err.Error())
		return func() {}, nil
	}
	for end := time.Now().Add(wait); ; {
		err := unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB)
		switch {
		case err == nil:
			return func() { unix.Close(fd) }, nil
		case !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR):
			err = fmt.Errorf("lock %s: %w", file, err)
		case time.Now().After(end):
			err = fmt.Errorf("lock %s: held by another program for %s", file, wait)
		default:
			select {
			case <-ctx.Done():
				err = ctx.Err()
			case <-time.After(lockInterval):
				continue
			}
		}
		unix.Close(fd)
		return nil, err
	}
}
