// Package nstest has what tests need that use the kernel, but no cluster
// network: single namespaces of package lab, their nf_tables, the version of
// the kernel, and the memory of the process.
package nstest

import (
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"runtime/debug"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/test/lab"
	"github.com/nftproxy/nftproxy/test/lab/listing"
	"github.com/nftproxy/nftproxy/test/must"
)

// Namespace is a network namespace without a name.
type Namespace struct{ *lab.Namespace }

// New creates a network namespace with its loopback interface up. The kernel
// removes it after the test, when its last descriptor and socket are closed.
func New(t testing.TB) Namespace {
	t.Helper()
	ns, err := lab.NewNamespace("test")
	must.NoError(t, err)
	must.Close(t, ns)
	return Namespace{ns}
}

// Enter moves the test to a network namespace of its own. The loopback
// interface is down. The namespace stays until the test ends, also if the test
// enters another one: the kernel gives the number of an ended namespace to a
// new one, whose commands would find the proxies of the old one.
func Enter(t testing.TB) {
	t.Helper()
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatalf("create a network namespace (needs root): %v", err)
	}
	entered, err := os.Open("/proc/thread-self/ns/net")
	must.NoError(t, err)
	t.Cleanup(func() { entered.Close() })
}

// programs are the programs nft of tests, by the test and its namespace.
var programs sync.Map

// NFT returns a program nft in the namespace of the test's thread, which ends
// with the test.
func NFT(t testing.TB) *listing.Program {
	t.Helper()
	var namespace unix.Stat_t
	must.NoError(t, unix.Stat("/proc/thread-self/ns/net", &namespace))
	key := [2]any{t, namespace.Ino}
	if known, ok := programs.Load(key); ok {
		return known.(*listing.Program)
	}
	program, err := listing.Start(false)
	must.NoError(t, err)
	programs.Store(key, program)
	t.Cleanup(func() {
		programs.Delete(key)
		must.NoError(t, program.Close())
	})
	return program
}

// RunNFT runs a command of nft in the namespace of the test's thread and
// returns its output.
func RunNFT(t testing.TB, command string) string {
	t.Helper()
	out, err := NFT(t).Run(command)
	must.NoError(t, err)
	return out
}

// Open returns a connection to nf_tables in the namespace of the test's thread,
// which is closed after the test.
func Open(t testing.TB) *nft.Conn {
	t.Helper()
	c, err := nft.Open()
	must.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	return c
}

// Commit commits a table with its program and rows.
func Commit(t testing.TB, c *nft.Conn, table *nft.Table, rows ...nft.Row) {
	t.Helper()
	b := nft.NewBatch(table)
	b.AddProgram()
	for _, r := range rows {
		b.AddRow(r)
	}
	must.NoError(t, c.Commit(b))
}

// Do calls f on a thread in the namespace. Goroutines that f starts run in
// the namespace of the process. It panics if the thread cannot change its
// namespace.
func (ns Namespace) Do(f func()) {
	err := ns.Namespace.Do(func() error {
		f()
		return nil
	})
	if err != nil {
		panic(err)
	}
}

// AddAddr adds an address to a link, and waits until the kernel delivers
// packets to it locally.
func (ns Namespace) AddAddr(t testing.TB, link string, addr netip.Addr, bits int) {
	t.Helper()
	must.NoError(t, ns.AddAddrTo(link, netip.PrefixFrom(addr, bits)))
}

// KernelAtLeast reports whether the running kernel has at least this version.
func KernelAtLeast(t testing.TB, major, minor int) bool {
	t.Helper()
	var u unix.Utsname
	must.NoError(t, unix.Uname(&u))
	var a, b int
	_, err := fmt.Sscanf(unix.ByteSliceToString(u.Release[:]), "%d.%d", &a, &b)
	must.NoError(t, err)
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

// CPUTime returns the CPU time of the process, which depends less on other
// processes than the time of day.
func CPUTime(t testing.TB) time.Duration {
	t.Helper()
	var usage unix.Rusage
	must.NoError(t, unix.Getrusage(unix.RUSAGE_SELF, &usage))
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// ResetPeakMemory frees unused memory, and makes the kernel measure the peak
// of the resident memory of the process from now on.
func ResetPeakMemory(t testing.TB) {
	t.Helper()
	debug.FreeOSMemory()
	must.NoError(t, os.WriteFile("/proc/self/clear_refs", []byte("5"), 0))
}

// PeakMemory returns the peak of the resident memory of the process, in bytes.
func PeakMemory(t testing.TB) int {
	t.Helper()
	self, err := procfs.Self()
	must.NoError(t, err)
	status, err := self.NewStatus()
	must.NoError(t, err)
	return int(status.VmHWM)
}
