package nstest

import (
	"fmt"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// KernelAtLeast reports whether the running kernel has at least this version.
func KernelAtLeast(t testing.TB, major, minor int) bool {
	t.Helper()
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		t.Fatal(err)
	}
	var a, b int
	if _, err := fmt.Sscanf(unix.ByteSliceToString(u.Release[:]), "%d.%d", &a, &b); err != nil {
		t.Fatal(err)
	}
	return a > major || (a == major && b >= minor)
}

// Unprivileged runs f on a thread without CAP_NET_ADMIN. The thread ends with
// f.
func Unprivileged(t testing.TB, f func()) {
	t.Helper()
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var sets [2]unix.CapUserData
		err := unix.Capget(&header, &sets[0])
		if err == nil {
			sets[0].Effective &^= 1 << unix.CAP_NET_ADMIN
			err = unix.Capset(&header, &sets[0])
		}
		if err == nil {
			f()
		}
		done <- err
	}()
	if err := <-done; err != nil {
		t.Fatalf("drop CAP_NET_ADMIN: %v", err)
	}
}
