package proxier

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/nftproxy/nftproxy/test/must"
	"github.com/nftproxy/nftproxy/test/tabletest"
)

// fakeAddresses are the addresses and errors of a test in a synctest bubble.
type fakeAddresses struct {
	mu          sync.Mutex // guards the fields below
	addrs       string     // with spaces between them
	interrupted int        // number of the next lists that are interrupted, and lack the last address
	lists       int        // number of lists so far
	changes     chan error
}

func (f *fakeAddresses) list() (all []netlink.Addr, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	addrs := strings.Fields(f.addrs)
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

// set sets the addresses and the number of interrupted lists.
func (f *fakeAddresses) set(addrs string, interrupted int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.addrs, f.interrupted = addrs, interrupted
}

// reported contains the addresses that a localAddresses reported last.
type reported struct{ addrs atomic.Pointer[[]netip.Addr] }

func (r *reported) report(ips []netip.Addr) { r.addrs.Store(&ips) }

// addressStep is a change of the addresses, or none if addrs is empty.
type addressStep struct {
	addrs       string
	interrupted int
	message     error // that the kernel sends with the change; nil for the usual one
	silent      bool  // the kernel sends no message
	pass        time.Duration
	want        string
}

// The first step is the start. An interrupted list is tried again. If each try
// is interrupted, the process starts with the incomplete list, and NodePorts
// later keep the known addresses.
func TestLocalAddresses(t *testing.T) {
	const first = "127.0.0.2 fe80::1 192.0.2.1 192.0.2.2"
	badMessage := errors.New("bad file descriptor")
	for name, steps := range map[string][]addressStep{
		"complete list": {{addrs: first, want: "127.0.0.2 192.0.2.1 192.0.2.2"}},
		"interrupted twice": {
			{addrs: first, interrupted: 2, want: "127.0.0.2 192.0.2.1 192.0.2.2"},
			{addrs: "192.0.2.2 192.0.2.3", interrupted: 2, pass: time.Second, want: "192.0.2.2 192.0.2.3"},
		},
		"always interrupted": {
			{addrs: first, interrupted: 1000, want: "127.0.0.2 192.0.2.1"},
			{addrs: first, silent: true, pass: time.Minute, want: "127.0.0.2 192.0.2.1 192.0.2.2"},
			{addrs: "192.0.2.3 192.0.2.4", interrupted: 1000, pass: time.Second, want: "127.0.0.2 192.0.2.1 192.0.2.2"},
			{addrs: "192.0.2.3 192.0.2.4", silent: true, pass: relistPeriod, want: "192.0.2.3 192.0.2.4"},
		},
		"no messages": {
			{addrs: first, want: "127.0.0.2 192.0.2.1 192.0.2.2"},
			{addrs: first, message: badMessage, want: "127.0.0.2 192.0.2.1 192.0.2.2"},
			{addrs: "192.0.2.2", silent: true, pass: relistPeriod + time.Second, want: "192.0.2.2"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { testAddresses(t, steps) })
		})
	}
}

func testAddresses(t *testing.T, steps []addressStep) {
	var got reported
	source := &fakeAddresses{changes: make(chan error), addrs: steps[0].addrs, interrupted: steps[0].interrupted}
	a := &localAddresses{
		report: got.report, listAll: source.list, wait: source.wait, release: func() { close(source.changes) },
	}
	must.NoError(t, a.start())
	if source.lists > 10 {
		t.Errorf("got %d lists at the start, want at most 10", source.lists)
	}
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { a.run(ctx) })
	for i, step := range steps {
		if i > 0 {
			source.set(step.addrs, step.interrupted)
		}
		if i > 0 && !step.silent {
			source.changes <- step.message
		}
		time.Sleep(step.pass)
		if got := strings.Trim(fmt.Sprint(*got.addrs.Load()), "[]"); got != step.want {
			t.Errorf("step %d: got addresses %q, want %q", i, got, step.want)
		}
	}
	stop()
	running.Wait()
	a.Close()
}

// The kernel drops messages about changes if they are too many. This change and
// later ones are detected all the same.
func TestManyAddresses(t *testing.T) {
	t.Parallel()
	tabletest.NewNamespace(t)
	got := new(reported)
	a, err := watchLocalAddresses(got.report)
	must.NoError(t, err)
	const many = 1000 // more than the receive buffer holds
	lo := &netlink.Dummy{LinkAttrs: netlink.LinkAttrs{Index: 1}}
	add := func(i int) {
		ip := &net.IPNet{IP: net.IPv4(10, 1, byte(i>>8), byte(i)), Mask: net.CIDRMask(32, 32)}
		must.NoError(t, netlink.AddrAdd(lo, &netlink.Addr{IPNet: ip}))
	}
	for i := range many {
		add(i)
	}
	must.NoError(t, a.wait())
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
