package observe

import (
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// Listener hears of committed transactions from the kernel, which tells of every rule and element of them, and at last that they are
// committed. While it is open the kernel makes these messages, so that large transactions take longer.
type Listener struct {
	conn *netlink.Conn
	done chan struct{}

	mu     sync.Mutex // guards what follows
	addrs  map[[4]byte]*Commit
	seen   []*Commit // in the transaction that the kernel tells of
	closed bool
	broken error
}

// Commit is a change that is waited for.
type Commit struct {
	// At says when the kernel told of it. It sends nothing when the kernel does not.
	At chan time.Time

	addrs []netip.Addr
}

// Listen begins to listen in the namespace that the descriptor holds.
func Listen(netns int) (*Listener, error) {
	conn, err := dial(netns)
	if err != nil {
		return nil, fmt.Errorf("listener: %w", err)
	}
	if err := conn.JoinGroup(unix.NFNLGRP_NFTABLES); err != nil {
		return nil, errors.Join(fmt.Errorf("listener: %w", err), conn.Close())
	}
	l := &Listener{conn: conn, done: make(chan struct{}), addrs: map[[4]byte]*Commit{}}
	go l.run()
	return l, nil
}

// Expect waits for a transaction with a rule or row that has one of these IPv4 addresses, each of which can be waited for once at a time.
func (l *Listener) Expect(addrs ...netip.Addr) *Commit {
	c := &Commit{At: make(chan time.Time, 1), addrs: addrs}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, addr := range addrs {
		l.addrs[addr.As4()] = c
	}
	return c
}

// Close stops listening. The error tells that notifications were lost: what was waited for may have come.
func (l *Listener) Close() error {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	err := l.conn.Close()
	<-l.done
	l.mu.Lock()
	defer l.mu.Unlock()
	return errors.Join(l.broken, err)
}

func (l *Listener) run() {
	defer close(l.done)
	for l.receive() {
	}
}

// receive hears of what is there or waits for it. It returns whether there can be more.
func (l *Listener) receive() bool {
	messages, err := l.conn.Receive()
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return false
	}
	if err != nil {
		l.broken = fmt.Errorf("notifications of the kernel: %w", err)
		return errors.Is(err, unix.ENOBUFS)
	}
	for _, m := range messages {
		l.hear(m, now)
	}
	return true
}

// hear looks at a message of a transaction. The caller holds mu.
func (l *Listener) hear(m netlink.Message, now time.Time) {
	if m.Header.Type == unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_NEWGEN {
		for _, c := range l.seen {
			c.At <- now
		}
		l.seen = l.seen[:0]
		return
	}
	// Attributes and the parts of a key begin at multiples of four bytes.
	for data := m.Data; len(data) >= 4; data = data[4:] {
		if c := l.addrs[[4]byte(data)]; c != nil {
			l.see(c)
		}
	}
}

// see takes note that what is waited for is in the transaction. The caller holds mu.
func (l *Listener) see(c *Commit) {
	for _, addr := range c.addrs {
		delete(l.addrs, addr.As4())
	}
	l.seen = append(l.seen, c)
}
