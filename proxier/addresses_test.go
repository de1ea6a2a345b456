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
	mu          sync.Mutex // guards the fields below
	addrs       []string
	interrupted int  // number of the next lists that are interrupted, and lack the last address
	refuse      bool // makes subscribe fail
	lists       int  // number of lists so far
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

// change sets the addresses and the number of interrupted lists, and notifies
// the subscriber, if any.
func (f *fakeAddresses) change(interrupted int, addrs ...string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.interrupted, f.addrs = interrupted, addrs
	if f.updates != nil {
		f.updates <- netlink.AddrUpdate{}
	}
}

// lose ends the subscription, as if a message was lost. The subscriber must
// close ended.
func (f *fakeAddresses) lose() (ended <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	close(f.updates)
	f.updates = nil
	return f.done
}

// set sets the number of interrupted lists, and whether subscribe fails.
func (f *fakeAddresses) set(interrupted int, refuse bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.interrupted, f.refuse = interrupted, refuse
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
	a := &localAddresses{source: source, report: got.report}
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
			source.set(0, false)
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
		source.set(0, false)
		time.Sleep(relistPeriod)
		got.want(t, "after the next list", "192.0.2.2", "192.0.2.3", "192.0.2.4")
	})
}

// A lost subscription is renewed, at once or with a later list.
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
			t.Error("the source did not learn that the lost subscription ended")
		}
		source.change(0, "192.0.2.1", "192.0.2.2")
		time.Sleep(time.Second)
		got.want(t, "after the first renewal", "192.0.2.1", "192.0.2.2")

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
		got.want(t, "after a later renewal", "192.0.2.4")
	})
}
