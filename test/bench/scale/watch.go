package main

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"sync"
	"time"

	"github.com/mdlayher/netlink"
	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"

	"github.com/nftproxy/nftproxy/test/lab"
)

// expected notes when something arrives that was expected by a key.
type expected[K comparable] struct {
	mu  sync.Mutex
	all map[K]chan time.Time
}

// expect returns a channel that receives the time when the first of the keys
// arrives.
func (e *expected[K]) expect(keys ...K) <-chan time.Time {
	at := make(chan time.Time, 1)
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.all == nil {
		e.all = map[K]chan time.Time{}
	}
	for _, key := range keys {
		e.all[key] = at
	}
	return at
}

// take returns the channel of a key, once; nil if the key is not expected.
func (e *expected[K]) take(key K) chan time.Time {
	e.mu.Lock()
	defer e.mu.Unlock()
	at := e.all[key]
	delete(e.all, key)
	return at
}

// arrive sends a time unless the channel has one already.
func arrive(at chan time.Time, now time.Time) {
	select {
	case at <- now:
	default:
	}
}

// watcher watches the objects as a proxy does, and ignores their contents. The
// keys are names.
type watcher struct {
	expected[string]
	stop context.CancelFunc
	done sync.WaitGroup
}

// watchFrom watches changes from now on.
func (w *world) watchFrom(ctx context.Context, from *lab.Namespace) (*watcher, error) {
	client, err := w.Cluster.Connect(from)
	if err != nil {
		return nil, err
	}
	now, err := w.Services().List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return nil, err
	}
	out := new(watcher)
	ctx, out.stop = context.WithCancel(ctx)
	for _, begin := range []cache.WatchFuncWithContext{
		client.CoreV1().Services("").Watch, client.DiscoveryV1().EndpointSlices("").Watch,
	} {
		// The API server ends the watch of a client that cannot keep up.
		list := &cache.ListWatch{WatchFuncWithContext: begin}
		one, err := watchtools.NewRetryWatcherWithContext(ctx, now.ResourceVersion, list)
		if err != nil {
			out.close()
			return nil, fmt.Errorf("watch: %w", err)
		}
		out.done.Go(func() {
			for event := range one.ResultChan() {
				now := time.Now()
				if object, err := meta.Accessor(event.Object); err == nil {
					arrive(out.take(object.GetName()), now)
				}
			}
		})
	}
	return out, nil
}

func (w *watcher) close() {
	w.stop()
	w.done.Wait()
}

// listener receives the kernel's notifications of transactions: messages about
// all rules and elements, and at last one about the commit. The keys are IPv4
// addresses in rules or rows. While it is open, large transactions take longer.
type listener struct {
	expected[[4]byte]
	conn *netlink.Conn
	done chan error
	seen []chan time.Time // in the current transaction
}

func listen(netns int) (*listener, error) {
	const buffer = 256 << 20 // for a transaction with many elements
	conn, err := netlink.Dial(unix.NETLINK_NETFILTER, &netlink.Config{NetNS: netns})
	if err != nil {
		return nil, fmt.Errorf("listener: %w", err)
	}
	if err := errors.Join(conn.SetReadBuffer(buffer), conn.JoinGroup(unix.NFNLGRP_NFTABLES)); err != nil {
		return nil, errors.Join(fmt.Errorf("listener: %w", err), conn.Close())
	}
	l := &listener{conn: conn, done: make(chan error, 1)}
	go func() { l.done <- l.run() }()
	return l, nil
}

// run receives until the connection is closed.
func (l *listener) run() (lost error) {
	for {
		messages, err := l.conn.Receive()
		now := time.Now()
		switch {
		case errors.Is(err, unix.ENOBUFS):
			lost = fmt.Errorf("notifications of the kernel: %w", err)
		case err != nil:
			return lost
		}
		for _, m := range messages {
			l.hear(m, now)
		}
	}
}

// hear handles a message.
func (l *listener) hear(m netlink.Message, now time.Time) {
	if m.Header.Type == unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_NEWGEN {
		for _, at := range l.seen {
			arrive(at, now)
		}
		l.seen = l.seen[:0]
		return
	}
	// Attributes and the parts of a key begin at multiples of four bytes.
	for data := m.Data; len(data) >= 4; data = data[4:] {
		if at := l.take([4]byte(data)); at != nil {
			l.seen = append(l.seen, at)
		}
	}
}

// close stops listening. The error reports that notifications were lost.
func (l *listener) close() error {
	err := l.conn.Close()
	return errors.Join(<-l.done, err)
}

// slab returns the kernel's unreclaimable slab memory in bytes, which contains
// rules, rows and sets.
func slab() (float64, error) {
	proc, err := procfs.NewDefaultFS()
	if err != nil {
		return 0, err
	}
	memory, err := proc.Meminfo()
	if err != nil {
		return 0, err
	}
	return float64(*memory.SUnreclaimBytes), nil
}

var (
	message = regexp.MustCompile(`(?m)^<\d+>\[ *(\d+\.\d+)\] (.*)$`)
	stall   = regexp.MustCompile(`soft lockup|hard LOCKUP|detected stall|self-detected|` +
		`blocked for more than|hogged CPU`)
)

// stalls returns the messages in the kernel's log after a time about soft
// lockups and other work that occupied the kernel for too long, and the time
// of the last message.
func stalls(since float64) (found []string, last float64, err error) {
	size, errSize := unix.Klogctl(unix.SYSLOG_ACTION_SIZE_BUFFER, nil)
	text := make([]byte, max(0, size))
	n, errRead := unix.Klogctl(unix.SYSLOG_ACTION_READ_ALL, text)
	if err := errors.Join(errSize, errRead); err != nil {
		return nil, 0, fmt.Errorf("kernel log: %w", err)
	}
	for i, match := range message.FindAllStringSubmatch(string(text[:n]), -1) {
		if last, err = strconv.ParseFloat(match[1], 64); err != nil {
			return nil, 0, fmt.Errorf("kernel log: %w", err)
		}
		if i == 0 && last > since && since > 0 {
			found = append(found, "Messages of the kernel were lost.")
		}
		if last > since && stall.MatchString(match[2]) {
			found = append(found, match[0])
		}
	}
	return found, last, nil
}
