package main

import (
	"testing"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// TestListenerHears passes the messages of two transactions to a listener.
func TestListenerHears(t *testing.T) {
	l := new(listener)
	one := l.expect([4]byte{10, 0, 0, 1}, [4]byte{10, 0, 0, 2})
	other := l.expect([4]byte{10, 0, 0, 3})
	row := func(data ...byte) netlink.Message {
		header := netlink.Header{Type: unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_NEWSETELEM}
		return netlink.Message{Header: header, Data: data}
	}
	committed := netlink.Message{Header: netlink.Header{Type: unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_NEWGEN}}
	first, second := time.Unix(1, 0), time.Unix(2, 0)

	l.hear(row(0, 0, 0, 0, 10, 0, 0, 2, 1, 1), first)
	l.hear(row(0, 0, 10, 0, 0, 3, 0, 0), first) // not aligned as values are
	if len(one) > 0 {
		t.Error("got a time before the transaction is committed")
	}
	l.hear(committed, first)
	l.hear(row(10, 0, 0, 1), second) // of a channel that has a time
	l.hear(row(10, 0, 0, 3), second)
	l.hear(committed, second)
	for i, at := range []<-chan time.Time{one, other} {
		if want := []time.Time{first, second}[i]; len(at) != 1 || !(<-at).Equal(want) {
			t.Errorf("commit %d: got another time or none, want %s", i, want)
		}
	}
}
