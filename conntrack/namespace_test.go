package conntrack

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/test/lab/nstest"
)

// namespace is a network namespace with its own connection tracking table.
type namespace struct {
	nstest.Namespace
}

func newNamespace(t testing.TB) namespace {
	t.Helper()
	return namespace{nstest.New(t)}
}

func (ns namespace) open(t testing.TB) (c *Conn) {
	t.Helper()
	ns.Do(func() {
		var err error
		if c, err = Open(); err != nil {
			t.Fatal(err)
		}
	})
	t.Cleanup(func() { c.Close() })
	return c
}

func (ns namespace) setSysctl(t testing.TB, path, value string) {
	t.Helper()
	ns.Do(func() {
		if err := os.WriteFile("/proc/sys/"+path, []byte(value), 0); err != nil {
			t.Fatal(err)
		}
	})
}

func kernelRelease() string {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return err.Error()
	}
	return unix.ByteSliceToString(u.Release[:])
}
