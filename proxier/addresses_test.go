package proxier

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/nftproxy/nftproxy/proxier/table/tabletest"
)

// fakeAddresses are the addresses and errors of a test.
type fakeAddresses struct {
	mu          sync.Mutex // guards the fields below
	addrs       []string
	interrupted int // number of the next lists that are interrupted, and lack the last address
	lists       int // number of lists so far
	changes     chan error
}

func (f *fakeAddresses) list() (all []netlink.Addr, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	addrs := f.addrs
	f.lists++
	if f.interrupted > 0 {
		f.interrupted--
		addrs, err = addrs[:len(addrs)-1], netlink.ErrDumpInterrupted
	}
	for _, a := range addrs {
		all = append(all, netlink.Addr{IPNet: &net.IPNet{IP: net.ParseIP(a)}})
	}
	return all, err
}

func (f *fakeAddresses) wait() error {
	err, open := <-f.changes
	if !open {
		return net.ErrClosed
	}
	return err
}

func (f *fakeAddresses) close() { close(f.changes) }

// change sets the addresses and the number of interrupted lists.
func (f *fakeAddresses) change(interrupted int, addrs ...string) {
	f.mu.Lock()
	f.interrupted, f.addrs = interrupted, addrs
	f.mu.Unlock()
	f.changes <- nil
}

// set sets the number of interrupted lists.
func (f *fakeAddresses) set(interrupted int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.interrupted = interrupted
}

// listed returns the number of lists so far.
func (f *fakeAddresses) listed() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.lists
}

// reported contains the addresses that a localAddresses reported last.
type reported struct{ addrs atomic.Pointer[[]netip.Addr] }

func (f *reported) report(ips []netip.Addr) { f.addrs.Store(&ips) }

func (f *reported) want(t *testing.T, when string, want ...string) {
	t.Helper()
	var got []string
	for _, a := range *f.addrs.Load() {
		got = append(got, a.String())
	}
	if !slices.Equal(got, want) {
		t.Errorf("%s: got addresses %q, want %q", when, got, want)
	}
}

// followAddresses runs a localAddresses until the test ends.
func followAddresses(t *testing.T, source *fakeAddresses) (*reported, error) {
	got := new(reported)
	source.changes = make(chan error)
	a := &localAddresses{report: got.report, listAll: source.list, wait: source.wait, release: source.close}
	if err := a.start(); err != nil {
		return got, err
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		a.run(ctx)
	}()
	t.Cleanup(func() {
		stop()
		<-ended
		a.Close()
	})
	return got, nil
}

// An interrupted list is tried again. If each try is interrupted, the process
// starts with the incomplete list.
func TestInterruptedListAtStart(t *testing.T) {
	for _, tt := range []struct {
		interrupted int
		want        []string
	}{
		{0, []string{"192.0.2.1", "192.0.2.2"}},
		{2, []string{"192.0.2.1", "192.0.2.2"}},
		{1000, []string{"192.0.2.1"}},
	} {
		synctest.Test(t, func(t *testing.T) {
			addrs := []string{"127.0.0.2", "fe80::1", "192.0.2.1", "192.0.2.2"}
			source := &fakeAddresses{addrs: addrs, interrupted: tt.interrupted}
			got, err := followAddresses(t, source)
			if err != nil {
				t.Fatalf("%d interruptions: %v", tt.interrupted, err)
			}
			got.want(t, "at the start", tt.want...)
			if n := source.listed(); n > 10 {
				t.Errorf("got %d lists, want at most 10", n)
			}
			source.set(0)
			time.Sleep(time.Minute)
			got.want(t, "one minute later", "192.0.2.1", "192.0.2.2")
		})
	}
}

// If each try of a list is interrupted, NodePorts keep the known addresses.
func TestInterruptedListLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &fakeAddresses{addrs: []string{"192.0.2.1", "192.0.2.2"}}
		got, err := followAddresses(t, source)
		if err != nil {
			t.Fatal(err)
		}
		source.change(2, "192.0.2.2", "192.0.2.3")
		time.Sleep(time.Second)
		got.want(t, "after two interruptions", "192.0.2.2", "192.0.2.3")
		source.change(1000, "192.0.2.2", "192.0.2.3", "192.0.2.4")
		time.Sleep(time.Second)
		got.want(t, "while all lists are interrupted", "192.0.2.2", "192.0.2.3")
		source.set(0)
		time.Sleep(relistPeriod)
		got.want(t, "after the next list", "192.0.2.2", "192.0.2.3", "192.0.2.4")
	})
}

// Without messages about changes, addresses are listed all the same.
func TestAddressesWithoutMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &fakeAddresses{addrs: []string{"192.0.2.1"}}
		got, err := followAddresses(t, source)
		if err != nil {
			t.Fatal(err)
		}
		source.changes <- errors.New("bad file descriptor")
		source.mu.Lock()
		source.addrs = []string{"192.0.2.2"}
		source.mu.Unlock()
		time.Sleep(relistPeriod + time.Second)
		got.want(t, "without messages", "192.0.2.2")
	})
}

// The kernel drops messages about changes if they are too many. This change and
// later ones are detected all the same.
func TestManyAddresses(t *testing.T) {
	tabletest.NewNamespace(t)
	got := new(reported)
	a, err := watchLocalAddresses(got.report)
	if err != nil {
		t.Fatal(err)
	}
	const many = 1000 // more than the receive buffer holds
	lo := &netlink.Dummy{LinkAttrs: netlink.LinkAttrs{Index: 1}}
	add := func(i int) {
		ip := &net.IPNet{IP: net.IPv4(10, 1, byte(i>>8), byte(i)), Mask: net.CIDRMask(32, 32)}
		if err := netlink.AddrAdd(lo, &netlink.Addr{IPNet: ip}); err != nil {
			t.Fatal(err)
		}
	}
	for i := range many {
		add(i)
	}
	if err := a.wait(); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { a.run(ctx) })
	for n := many; n <= many+1; n++ {
		for deadline := time.Now().Add(relistPeriod / 3); len(*got.addrs.Load()) < n && time.Now().Before(deadline); {
			time.Sleep(time.Millisecond)
		}
		if have := len(*got.addrs.Load()); have != n {
			t.Errorf("got %d addresses, want %d", have, n)
		}
		add(n)
	}
	stop()
	running.Wait()
	a.Close()
}
