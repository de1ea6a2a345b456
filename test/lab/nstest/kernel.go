package nstest

import (
	"fmt"
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
