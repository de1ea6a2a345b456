package healthcheck

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"runtime"
	"testing"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// namespace is a network namespace of the test's own, where every port is free.
type namespace struct {
	fd netns.NsHandle
}

func newNamespace(t *testing.T) namespace {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	host, err := netns.Get()
	if err != nil {
		t.Fatal(err)
	}
	defer host.Close()
	fd, err := netns.New()
	if err != nil {
		t.Fatalf("make a network namespace: %v", err)
	}
	if err := netns.Set(host); err != nil {
		panic(err) // the thread is in the wrong namespace
	}
	t.Cleanup(func() { fd.Close() })
	ns := namespace{fd}
	ns.do(func() {
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

// do runs f on a thread in the namespace.
func (ns namespace) do(f func()) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	host, err := netns.Get()
	if err != nil {
		panic(err)
	}
	defer host.Close()
	if err := netns.Set(ns.fd); err != nil {
		panic(err)
	}
	defer func() {
		if err := netns.Set(host); err != nil {
			panic(err)
		}
	}()
	f()
}

func (ns namespace) listen(network, address string) (l net.Listener, err error) {
	ns.do(func() { l, err = net.Listen(network, address) })
	return l, err
}

// addAddr gives the namespace an address that it did not have.
func (ns namespace) addAddr(t *testing.T, addr netip.Addr) {
	t.Helper()
	ns.do(func() {
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			t.Fatal(err)
		}
		ipNet := &net.IPNet{IP: addr.AsSlice(), Mask: net.CIDRMask(addr.BitLen(), addr.BitLen())}
		if err := netlink.AddrAdd(lo, &netlink.Addr{IPNet: ipNet, Flags: unix.IFA_F_NODAD}); err != nil {
			t.Fatalf("add %v: %v", addr, err)
		}
	})
}

// client asks from within the namespace, with a connection for each request.
func (ns namespace) client() *http.Client {
	return &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, network, address string) (conn net.Conn, err error) {
			ns.do(func() { conn, err = new(net.Dialer).DialContext(ctx, network, address) })
			return conn, err
		},
	}}
}
