package observe

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"os"
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
	texts  map[string]*Commit
	seen   []*Commit // in the transaction that the kernel tells of
	broken error
}

// Commit is a change that is waited for.
type Commit struct {
	// At says when the kernel told of it. It sends nothing when the kernel does not.
	At chan time.Time

	addr [4]byte
	text string
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
	l := &Listener{conn: conn, done: make(chan struct{}), addrs: map[[4]byte]*Commit{}, texts: map[string]*Commit{}}
	go l.run()
	return l, nil
}

// Expect waits for a transaction with a rule or row that has the IPv4 address or, unless it is empty, the text. An address can be
// waited for once at a time.
func (l *Listener) Expect(addr netip.Addr, text string) *Commit {
	c := &Commit{At: make(chan time.Time, 1), addr: addr.As4(), text: text}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.addrs[c.addr] = c
	if text != "" {
		l.texts[text] = c
	}
	return c
}

// Close stops listening. The error tells that notifications were lost: what was waited for may have come.
func (l *Listener) Close() error {
	err := l.conn.Close()
	<-l.done
	l.mu.Lock()
	defer l.mu.Unlock()
	return errors.Join(l.broken, err)
}

func (l *Listener) run() {
	defer close(l.done)
	for {
		messages, err := l.conn.Receive()
		now := time.Now()
		if errors.Is(err, os.ErrClosed) || errors.Is(err, unix.EBADF) {
			return
		}
		l.mu.Lock()
		if err != nil {
			l.broken = fmt.Errorf("notifications of the kernel: %w", err)
		}
		for _, m := range messages {
			l.hear(m, now)
		}
		l.mu.Unlock()
	}
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
	for text, c := range l.texts {
		if bytes.Contains(m.Data, []byte(text)) {
			l.see(c)
		}
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
	delete(l.addrs, c.addr)
	delete(l.texts, c.text)
	l.seen = append(l.seen, c)
}
