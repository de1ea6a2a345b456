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
)

// fakeAddresses is an addressSource with the addresses and errors of a test.
type fakeAddresses struct {
	mu          sync.Mutex // guards what follows
	addrs       []string
	interrupted int  // how many of the next lists are interrupted, and lack the last address
	refuse      bool // makes subscribe fail
	lists       int  // how many lists there were
	updates     chan<- netlink.AddrUpdate
	done        <-chan struct{}
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

func (f *fakeAddresses) subscribe(updates chan<- netlink.AddrUpdate, done <-chan struct{}) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.refuse {
		return errors.New("no buffer space available")
	}
	f.updates, f.done = updates, done
	return nil
}

func (f *fakeAddresses) close() {}

// change sets the addresses and how many of the next lists are interrupted, and
// sends a message if there is a subscription.
func (f *fakeAddresses) change(interrupted int, addrs ...string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.interrupted, f.addrs = interrupted, addrs
	if f.updates != nil {
		f.updates <- netlink.AddrUpdate{}
	}
}

// lose ends the subscription, as when a message was lost.
func (f *fakeAddresses) lose() (ended <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	close(f.updates)
	f.updates = nil
	return f.done
}

// set changes what the next calls do.
func (f *fakeAddresses) set(interrupted int, refuse bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.interrupted, f.refuse = interrupted, refuse
}

// listed returns how many lists there were.
func (f *fakeAddresses) listed() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.lists
}

// followed is what a localAddresses passes on.
type followed struct{ addrs atomic.Pointer[[]netip.Addr] }

func (f *followed) report(ips []netip.Addr) { f.addrs.Store(&ips) }

func (f *followed) want(t *testing.T, what string, want ...string) {
	t.Helper()
	var got []string
	for _, a := range *f.addrs.Load() {
		got = append(got, a.String())
	}
	if !slices.Equal(got, want) {
		t.Errorf("%s: addresses %q, want %q", what, got, want)
	}
}

// followAddresses runs a localAddresses of the range 192.0.2.0/24 until the test
// ends.
func followAddresses(t *testing.T, source *fakeAddresses) (*followed, error) {
	got := new(followed)
	a := &localAddresses{cidrs: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}, source: source, report: got.report}
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
		a.close()
	})
	return got, nil
}

// A list that is interrupted is tried again. If it is interrupted each time, the
// process starts with the addresses that it has.
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
			source := &fakeAddresses{addrs: []string{"10.0.0.1", "192.0.2.1", "192.0.2.2"}, interrupted: tt.interrupted}
			got, err := followAddresses(t, source)
			if err != nil {
				t.Fatalf("%d interruptions: %v", tt.interrupted, err)
			}
			got.want(t, "at the start", tt.want...)
			if n := source.listed(); n > 10 {
				t.Errorf("%d lists", n)
			}
			source.set(0, false)
			time.Sleep(time.Minute)
			got.want(t, "a minute later", "192.0.2.1", "192.0.2.2")
		})
	}
}

// A list that is interrupted each time does not take addresses away from NodePorts
// that listen on them.
func TestInterruptedListLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &fakeAddresses{addrs: []string{"192.0.2.1", "192.0.2.2"}}
		got, err := followAddresses(t, source)
		if err != nil {
			t.Fatal(err)
		}
		source.change(2, "192.0.2.2", "192.0.2.3")
		time.Sleep(time.Second)
		got.want(t, "after interruptions", "192.0.2.2", "192.0.2.3")
		source.change(1000, "192.0.2.2", "192.0.2.3", "192.0.2.4")
		time.Sleep(time.Second)
		got.want(t, "while interrupted", "192.0.2.2", "192.0.2.3")
		source.set(0, false)
		time.Sleep(relistPeriod)
		got.want(t, "at the next list", "192.0.2.2", "192.0.2.3", "192.0.2.4")
	})
}

// A subscription that is lost and cannot be renewed at once is renewed later.
func TestResubscription(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &fakeAddresses{addrs: []string{"192.0.2.1"}}
		got, err := followAddresses(t, source)
		if err != nil {
			t.Fatal(err)
		}
		ended := source.lose()
		time.Sleep(time.Second)
		select {
		case <-ended:
		default:
			t.Error("the lost subscription was not ended")
		}
		source.change(0, "192.0.2.1", "192.0.2.2")
		time.Sleep(time.Second)
		got.want(t, "after a renewal at once", "192.0.2.1", "192.0.2.2")

		source.set(0, true)
		source.lose()
		time.Sleep(2 * relistPeriod)
		source.change(0, "192.0.2.3")
		time.Sleep(relistPeriod)
		got.want(t, "without a subscription", "192.0.2.3")
		source.set(0, false)
		time.Sleep(relistPeriod)
		source.change(0, "192.0.2.4")
		time.Sleep(time.Second)
		got.want(t, "after a renewal later", "192.0.2.4")
	})
}
