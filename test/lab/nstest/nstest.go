// Package nstest creates single network namespaces for tests of packages that
// need no cluster network. Package lab creates cluster networks.
package nstest

import (
	"net"
	"net/netip"
	"runtime"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// Namespace is a network namespace without a name.
type Namespace struct {
	handle netns.NsHandle
}

// New creates a network namespace with its loopback interface up. The kernel
// removes it after the test, when its last descriptor and socket are closed.
func New(t testing.TB) Namespace {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	host, err := netns.Get()
	if err != nil {
		t.Fatal(err)
	}
	defer host.Close()
	handle, err := netns.New()
	if err != nil {
		t.Fatalf("create network namespace: %v", err)
	}
	t.Cleanup(func() { handle.Close() })
	enter(host)
	ns := Namespace{handle}
	ns.Do(func() {
		lo, err := netlink.LinkByName("lo")
		if err == nil {
			err = netlink.LinkSetUp(lo)
		}
		if err != nil {
			t.Fatalf("set lo up: %v", err)
		}
	})
	return ns
}

// Fd returns the descriptor of the namespace. It is valid until the test
// ends.
func (ns Namespace) Fd() int { return int(ns.handle) }

// Do calls f on a thread in the namespace. Goroutines that f starts run in
// the namespace of the process. It panics if the thread cannot change its
// namespace.
func (ns Namespace) Do(f func()) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	host, err := netns.Get()
	if err != nil {
		panic(err)
	}
	defer host.Close()
	enter(ns.handle)
	defer enter(host)
	f()
}

func enter(handle netns.NsHandle) {
	if err := netns.Set(handle); err != nil {
		panic(err)
	}
}

// AddAddr adds an address to a link, and waits until the kernel delivers
// packets to it locally. For IPv6, the local route follows a little later.
func (ns Namespace) AddAddr(t testing.TB, link string, addr netip.Addr, bits int) {
	t.Helper()
	ns.Do(func() {
		l, err := netlink.LinkByName(link)
		if err != nil {
			t.Fatal(err)
		}
		ipNet := &net.IPNet{IP: addr.AsSlice(), Mask: net.CIDRMask(bits, addr.BitLen())}
		if err := netlink.AddrAdd(l, &netlink.Addr{IPNet: ipNet, Flags: unix.IFA_F_NODAD}); err != nil {
			t.Fatalf("add %v: %v", addr, err)
		}
		for range 1000 {
			routes, err := netlink.RouteGet(addr.AsSlice())
			if err == nil && len(routes) > 0 && routes[0].Type == unix.RTN_LOCAL {
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
		t.Fatalf("address %v is not local after 10 s", addr)
	})
}
