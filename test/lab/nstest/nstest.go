// Package nstest has what tests need that use the kernel, but no cluster
// network: single namespaces of package lab, the version of the kernel, and the
// memory of the process.
package nstest

import (
	"net/netip"
	"testing"

	"github.com/nftproxy/nftproxy/test/lab"
)

// Namespace is a network namespace without a name.
type Namespace struct{ *lab.Namespace }

// New creates a network namespace with its loopback interface up. The kernel
// removes it after the test, when its last descriptor and socket are closed.
func New(t testing.TB) Namespace {
	t.Helper()
	ns, err := lab.NewNamespace("test")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := ns.Close(); err != nil {
			t.Error(err)
		}
	})
	return Namespace{ns}
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
	if err := ns.AddAddrTo(link, netip.PrefixFrom(addr, bits)); err != nil {
		t.Fatal(err)
	}
}
