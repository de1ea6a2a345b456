package nft_test

import (
	"fmt"
	"os"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/test/lab/nstest"
)

// TestMain runs the examples in a new network namespace: they run in its
// thread. Each test makes a namespace of its own.
func TestMain(m *testing.M) {
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		fmt.Fprintln(os.Stderr, "create a network namespace (needs root):", err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// connect moves the test to a new network namespace and returns a connection
// to its nf_tables.
func connect(t testing.TB) *nft.Conn {
	t.Helper()
	nstest.Enter(t)
	return nstest.Open(t)
}

var families = []nft.Family{nft.IPv4, nft.IPv6}

// eachFamily runs a test for each family in a new network namespace, in
// parallel with other tests.
func eachFamily(t *testing.T, test func(t *testing.T, f nft.Family, c *nft.Conn)) {
	t.Parallel()
	for _, f := range families {
		t.Run(f.String(), func(t *testing.T) {
			t.Parallel()
			test(t, f, connect(t))
		})
	}
}
